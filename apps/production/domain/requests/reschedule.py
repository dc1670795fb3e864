"""Changes to the schedule of a submitted request: a later deadline, a requested class."""

from collections.abc import Iterable
from dataclasses import replace
from datetime import date, datetime

from django.db import transaction

from apps.accounts.models import User
from apps.core.domain.events import publish
from apps.core.errors import InvalidFields, InvalidTransition, NotAllowed
from apps.core.models import Event
from apps.production.domain.content.stages import content_of
from apps.production.domain.forecast import expected_class
from apps.production.domain.lifecycle.steps import lock_request, state_text
from apps.production.domain.reasons import reason_problems
from apps.production.domain.requests.drafts import save_draft
from apps.production.enums import POSTPONABLE, SCORED, RequestedPriority
from apps.production.models import Request
from apps.production.permissions import is_liaison_of


@transaction.atomic
def reschedule(
    *,
    request: Request,
    by: User,
    at: datetime,
    reason: str,
    deadline: date | None = None,
    requested_class: str | None = None,
    version: int | None = None,
) -> Request:
    """Postpone the deadline, request a class from the approvers, or both, with a reason.

    A later deadline needs no new signatures, as in the request form. The class is set by an
    approver, who decides on it. Raises `NotAllowed`, `InvalidTransition`, `InvalidFields`,
    `StaleState`.
    """
    if not is_liaison_of(by, request):
        raise NotAllowed(f"Only liaisons of {request.experiment} can change its schedule.")
    lock_request(request, version)
    if request.state not in POSTPONABLE:
        raise InvalidTransition(
            f"{request} is {state_text(request)}. Its schedule cannot be changed in this state."
        )
    problems = reason_problems(reason) | _schedule_problems(request, deadline, requested_class)
    if problems:
        raise InvalidFields(problems)
    if deadline is not None and deadline != request.deadline:
        content = replace(content_of(request), deadline=deadline)
        request = save_draft(
            request=request, content=content, version=request.version, by=by, at=at, reason=reason
        )
    if requested_class is not None:
        data = {"requested": requested_class}
        publish(
            kind="request.class_requested",
            target=request,
            by=by,
            at=at,
            reason=reason.strip(),
            data=data,
        )
    return request


def _schedule_problems(
    request: Request, deadline: date | None, requested_class: str | None
) -> dict[str, list[str]]:
    problems: dict[str, list[str]] = {}
    is_moved = deadline is not None and deadline != request.deadline
    if not is_moved and requested_class is None:
        problems["deadline"] = ["Choose a later deadline, a class, or both."]
    if is_moved and request.deadline is None:
        problems["deadline"] = [
            "The request has no deadline. A new one needs new signatures: edit the request."
        ]
    elif is_moved and deadline and request.deadline and deadline < request.deadline:
        problems["deadline"] = [
            f"Choose a date after {request.deadline:%-d %b %Y}. The deadline can only be postponed."
        ]
    if requested_class is not None:
        if requested_class not in RequestedPriority.values:
            problems["requested_class"] = [f"Choose one of: {', '.join(RequestedPriority.values)}."]
        elif request.state not in SCORED:
            problems["requested_class"] = [
                "A class can be requested once the request is approved, before its jobs end."
            ]
        elif requested_class == expected_class(request):
            problems["requested_class"] = [f"The request has class {requested_class} already."]
    return problems


def open_class_request(events: Iterable[Event]) -> Event | None:
    """Return the newest request for a class, unless an approver has set the priority since."""
    newest = None
    for event in events:
        if event.kind == "request.class_requested":
            newest = event
        elif event.kind == "request.priority_set":
            newest = None
    return newest
