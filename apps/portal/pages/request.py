"""The page of a request, with content from several apps."""

from dataclasses import dataclass
from datetime import date, datetime
from itertools import chain
from typing import Any

from django.db.models import prefetch_related_objects
from django.utils import timezone
from django.utils.functional import SimpleLazyObject

from apps.accounts.enums import Role
from apps.accounts.models import User
from apps.core.domain.events import events_of
from apps.notifications.domain.atom_feeds import addresses_of
from apps.notifications.domain.preferences import level_of
from apps.portal.pages.request_ends import earlier_end
from apps.portal.pages.request_use import outputs_of, uses_of
from apps.production.domain.actors import may
from apps.production.domain.advice import request_advice
from apps.production.domain.approvals.inbox import RESPONSIBLE
from apps.production.domain.approvals.requirements import Approval, approval_of, slots_of
from apps.production.domain.checks.report import warnings_at_submission, warnings_now
from apps.production.domain.content.changes import may_change
from apps.production.domain.content.model import RequestContent
from apps.production.domain.content.stages import argument_texts, content_of, stage_arguments
from apps.production.domain.discussion import threads_of
from apps.production.domain.estimates.figures import Estimate
from apps.production.domain.estimates.past import estimate_for
from apps.production.domain.forecast import Days, Forecast
from apps.production.domain.holds import holds_over
from apps.production.domain.lifecycle.moves import moves_for
from apps.production.domain.lineage.links import may_rearrange, related_to
from apps.production.domain.lineage.templates import may_manage
from apps.production.domain.priority.listing import line_of, queue_length
from apps.production.domain.priority.ranks import is_in_line
from apps.production.domain.priority.shares import ranks_by_class, with_expected_end
from apps.production.domain.requests.reschedule import open_class_request
from apps.production.domain.requests.status import required_services, status_of, steps_of, totals_of
from apps.production.domain.slack import Slack, slack_of
from apps.production.enums import (
    BEFORE_PRODUCTION,
    CLOSED,
    IN_PRODUCTION,
    Actor,
    AttentionKind,
    RequestState,
    Verb,
)
from apps.production.models import Request
from apps.production.permissions import may_edit, may_prioritise, may_reschedule
from apps.progress.domain.progress import RequestNow, progress_now
from apps.quality.domain.data_quality import data_quality_of as quality_of
from apps.statusboard.enums import State


@dataclass(frozen=True)
class Schedule:
    """The deadline of a request and its expected end. Lengths are days from its approval."""

    started_at: datetime
    forecast: Forecast
    deadline: date | None
    slack: Slack | None
    days_gone: float
    days_left: float
    days_over: float


def schedule_of(request: Request, progress: RequestNow | None, at: datetime) -> Schedule | None:
    """Return the schedule of an approved request that is still open."""
    if progress is None or request.approved_at is None or request.state in CLOSED:
        return None
    start = timezone.localdate(request.approved_at)
    now = timezone.localdate(at)
    forecast = progress.forecast
    end = forecast.end[1] if forecast.end else now
    due = request.deadline or end
    slack = slack_of(request.deadline, forecast, today=now)
    return Schedule(
        request.approved_at,
        forecast,
        request.deadline,
        slack,
        days_gone=max(0, (min(now, due) - start).days),
        days_left=max(0, (min(due, max(end, now)) - max(now, start)).days),
        days_over=slack.days_late if slack else 0,
    )


def _schedule(request: Request, progress: RequestNow | None, at: datetime) -> dict[str, Any]:
    """Return the schedule, and the needs for attention.

    A note that a request is late is left out if the schedule contradicts it: a worker updates the
    note moments after a change, while the page shows the change at once.
    """
    schedule = schedule_of(request, progress, at)
    is_late = schedule is None or (schedule.slack is not None and schedule.slack.is_late)
    attention = []
    for row in request.attention.all():
        if row.kind != AttentionKind.LATE or is_late:
            attention.append(row)
    return {"schedule": schedule, "attention": attention}


def next_by(request: Request, approval: Approval) -> str:
    """Return who must act next on a request. Empty once it is closed."""
    state = RequestState(request.state)
    if state in CLOSED:
        return ""
    if state == RequestState.AWAITING_APPROVAL:
        names = dict.fromkeys(chain.from_iterable(slot.people for slot in approval.missing))
        return ", ".join(list(names)[:3]) or "approvers"

    waits = {state, *(row.kind for row in request.attention.all())} - {AttentionKind.LATE}
    roles = next((roles for wait, roles in RESPONSIBLE.items() if wait in waits), ())
    named = {
        Role.LIAISON: f"liaisons of {request.experiment}",
        Role.APPROVER: "approvers",
        Role.SHIFTER: "shifters",
    }
    return " and ".join(named[role] for role in roles) or "the portal"


#: How many events the overview shows.
LATEST = 3
#: The value of `?do=` that opens the priority form.
PRIORITY = "priority"
#: The value of `?do=` that opens the form for a later deadline and a requested class.
RESCHEDULE = "reschedule"
#: States in which data quality comes first on the page, and states with output.
_REVIEWED = frozenset({RequestState.DATA_QUALITY, RequestState.DONE, RequestState.DONE_PARTIAL})
_WITH_OUTPUT = _REVIEWED | {RequestState.RUNNING, RequestState.COMPLETING}


def _checks_now(request: Request, requested: bool) -> bool:
    return request.state == RequestState.AWAITING_APPROVAL or (
        requested and request.state not in CLOSED
    )


def _needs_and_use(
    request: Request,
    progress: RequestNow | None,
    estimate: Estimate | None,
    approval: Approval,
    at: datetime,
) -> dict[str, Any]:
    """Return the needs, use and output of a request, and changes that would end it earlier."""
    needs = required_services(request, at)
    holds = holds_over(request)
    outputs = outputs_of(progress) if progress else []
    return {
        "needs_impaired": [need for need in needs if need.row.state != State.UP],
        "needs_up": [need for need in needs if need.row.state == State.UP],
        "holds": holds,
        "estimate": estimate,
        "outputs": outputs,
        "uses": uses_of(request, progress, estimate, outputs) if progress else [],
        "earlier": earlier_end(
            request,
            approval=approval,
            estimate=estimate,
            holds=holds,
            needs=needs,
            progress=progress,
            at=at,
        ),
    }


def request_page(
    *, request: Request, user: User, at: datetime, open_form: str = "", checks: bool = False
) -> dict[str, Any]:
    """Return the context of the page.

    `open_form` is the verb of the move whose form is open, `PRIORITY` or `RESCHEDULE`; `step` is
    that move, if the user can make it. With `checks`, an open request is checked now; otherwise
    only while it waits for approval. `progress` is set once the request is approved, `quality` once
    it has output. `level` and `feeds` describe how the user follows it.
    """
    prefetch_related_objects([request], "attention")
    slots: Any = SimpleLazyObject(lambda: slots_of(request, user, at))
    moves = moves_for(user, request, at, slots=slots)
    events = list(events_of(request))
    prioritises = may_prioritise(user, request)
    reschedules = may_reschedule(user, request)
    threads = threads_of(request)
    line = line_of(request, user=user, at=at)
    written = content_of(request)
    start = line.start.days if line and line.start else None
    sets_priority = open_form == PRIORITY and prioritises
    approval = approval_of(request, user, at, slots=slots)
    progress = None
    if request.approved_at:
        progress = progress_now(request, at=at)
    estimate = None
    if request.state not in CLOSED:
        estimate = _estimate(request, written, start, at)
    return {
        "object": request,
        "next_by": next_by(request, approval),
        **_schedule(request, progress, at),
        "status": status_of(
            request, events, user, to_sign=any(move.verb is Verb.APPROVE for move in moves)
        ),
        "steps": steps_of(request),
        "events": events,
        "latest": events[: -1 - LATEST : -1],
        "moves": moves,
        "step": next((move for move in moves if move.verb == open_form), None),
        "sets_priority": sets_priority,
        "reschedules": open_form == RESCHEDULE and reschedules,
        "may_reschedule": reschedules,
        "class_request": open_class_request(events),
        "by_class": ranks_by_class(request, at=at) if sets_priority else [],
        "may_edit": may_edit(user, request) and may_change(request.state, written),
        "may_prioritise": prioritises,
        "may_clone": may(user, Actor.LIAISON, request),
        "may_keep": may_manage(user, request.experiment_id),
        "may_rearrange": request.state in BEFORE_PRODUCTION and may_rearrange(user, request),
        "approval": approval,
        "stages": stage_arguments(request),
        "ingredients": argument_texts(request),
        "totals": totals_of(request),
        **_needs_and_use(request, progress, estimate, approval, at),
        "advice": estimate
        and request_advice(content=written, experiment=request.experiment, user=user, at=at),
        "submission_warnings": warnings_now(request, written, at=at)
        if _checks_now(request, checks)
        else warnings_at_submission(events),
        "begun": request.state in IN_PRODUCTION and not is_in_line(request),
        "line": line,
        "queue_length": queue_length() if line else 0,
        "threads": threads,
        "open_threads": sum(thread.is_open for thread in threads),
        "related": related_to(request),
        "progress": progress,
        "quality": quality_of(request) if request.state in _WITH_OUTPUT else None,
        "in_data_quality": request.state in _REVIEWED,
        "level": level_of(user, request),
        "feeds": addresses_of(getattr(user, "notification_preferences", None), request),
    }


def _estimate(
    request: Request, written: RequestContent, start: Days | None, at: datetime
) -> Estimate:
    """Return the estimate of an open request, with its end for this expected start."""
    estimate = estimate_for(written, request.experiment, at, without=request)
    return with_expected_end(estimate, request, start=start, at=at)
