"""Exceptions from advice: for some hours, jobs of a request are submitted against it.

The advice comes from a service that is down, or from an announcement.
"""

from datetime import datetime, timedelta

from django.db import transaction

from apps.accounts.models import User
from apps.core.domain.background import enqueue
from apps.core.domain.events import publish
from apps.core.errors import InvalidFields, InvalidTransition
from apps.production.domain.reasons import checked_reason, reason_problems
from apps.production.models import Request
from apps.submission.domain.arrays.plan import lock_request
from apps.submission.domain.arrays.submissions import ASSIGNABLE, SENDABLE, check_may_submit

#: Hours for which the advice can be ignored.
MOST_HOURS = 168
STATES = ASSIGNABLE | SENDABLE


@transaction.atomic
def ignore_advice(*, request: Request, by: User, at: datetime, reason: str, hours: int) -> Request:
    """Submit the jobs of a request for a number of hours, whatever the advice is.

    Raises `NotAllowed`, `InvalidFields`, `InvalidTransition` if no jobs are submitted for it.
    """
    check_may_submit(by, request)
    request = lock_request(request)
    problems = reason_problems(reason.strip())
    if not 1 <= hours <= MOST_HOURS:
        problems["hours"] = [f"Enter 1 to {MOST_HOURS}."]
    if problems:
        raise InvalidFields(problems)
    if request.state not in STATES:
        raise InvalidTransition(
            f"{request} is “{request.get_state_display()}”: no jobs can be submitted for it."
        )
    until = at + timedelta(hours=hours)
    _set(request, until)
    data = {"until": f"{until:%Y-%m-%d %H:%M} UTC"}
    publish(
        kind="submission.advice_ignored",
        target=request,
        by=by,
        at=at,
        reason=reason.strip(),
        data=data,
    )
    return request


@transaction.atomic
def follow_advice(*, request: Request, by: User, at: datetime, reason: str = "") -> Request:
    """Follow the advice again. Raises `NotAllowed`, `InvalidTransition` if it is followed."""
    check_may_submit(by, request)
    request = lock_request(request)
    if not ignores_advice(request, at):
        raise InvalidTransition(f"{request} follows the advice.")
    _set(request, None)
    publish(
        kind="submission.advice_followed",
        target=request,
        by=by,
        at=at,
        reason=checked_reason(reason, needed=False),
    )
    return request


def ignores_advice(request: Request, at: datetime) -> bool:
    """Return whether jobs of a request are submitted whatever the advice is."""
    return request.ignores_advice_until is not None and request.ignores_advice_until > at


def _set(request: Request, until: datetime | None) -> None:
    request.ignores_advice_until = until
    request.save(update_fields=["ignores_advice_until"])
    enqueue("submission.send_all")
