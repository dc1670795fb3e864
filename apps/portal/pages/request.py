"""The page of a request, with content from several apps."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime
from itertools import chain
from typing import Any

from django.db.models import prefetch_related_objects
from django.utils import timezone
from django.utils.functional import SimpleLazyObject
from django.utils.text import get_text_list

from apps.accounts.enums import Role
from apps.accounts.models import User
from apps.core.domain.events import events_of
from apps.core.models import Event
from apps.datasets.domain.input_datasets import InputDataset, input_datasets
from apps.datasets.domain.staging import may_stage
from apps.notifications.domain.atom_feeds import addresses_of
from apps.notifications.domain.preferences import level_of
from apps.portal.pages.late_end import status_of_late
from apps.portal.pages.request_ends import EndingChange, earlier_end
from apps.portal.pages.request_start import lacks_cluster, status_without_cluster, waits_for_cluster
from apps.portal.pages.request_use import (
    Output,
    StartEstimate,
    Use,
    estimate_at_start,
    outputs_of,
    uses_of,
)
from apps.production.domain.actors import may
from apps.production.domain.advice import SubmitAdvice, request_advice
from apps.production.domain.approvals.inbox import RESPONSIBLE, Action, action_for
from apps.production.domain.approvals.requirements import Approval, approval_of, slots_of
from apps.production.domain.checks.limits import NeededChange, needed_changes
from apps.production.domain.checks.report import Warnings, warnings_at_submission, warnings_now
from apps.production.domain.content.changes import may_change
from apps.production.domain.content.model import RequestContent
from apps.production.domain.content.stages import ArgumentText, argument_texts, content_of
from apps.production.domain.discussion import Thread, threads_of
from apps.production.domain.estimates.figures import NO_ESTIMATE, Estimate
from apps.production.domain.estimates.past import estimate_for
from apps.production.domain.forecast import Forecast
from apps.production.domain.holds import ActiveHold, holds_over
from apps.production.domain.lifecycle.moves import moves_for
from apps.production.domain.lifecycle.transitions import Transition
from apps.production.domain.lineage.links import Related, may_rearrange, related_to
from apps.production.domain.lineage.templates import may_manage
from apps.production.domain.priority.current_forecasts import update_forecasts
from apps.production.domain.priority.listing import QueueRow, queue_row_of
from apps.production.domain.priority.prospects import ranks_by_class, with_expected_end
from apps.production.domain.priority.ranks import has_rank, ranked_requests
from apps.production.domain.requests.reschedule import open_class_request
from apps.production.domain.requests.status import (
    ProgressStep,
    RequiredService,
    Status,
    Totals,
    required_services,
    status_of,
    steps_of,
    totals_of,
)
from apps.production.domain.slack import Slack, slack_of
from apps.production.enums import (
    BEFORE_PRODUCTION,
    CLOSED,
    IN_PRODUCTION,
    Actor,
    AttentionKind,
    RequestState,
)
from apps.production.models import Attention, Request, Stage
from apps.production.permissions import may_edit, may_prioritise, may_reschedule
from apps.progress.domain.progress import RequestNow, progress_now
from apps.quality.domain.data_quality import DataQuality, data_quality_of
from apps.statusboard.enums import State
from apps.submission.domain.arrays.submissions import may_submit
from apps.submission.domain.dispatch.start import automatic_clusters


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
    days_overdue: int = 0

    @property
    def days_at_risk(self) -> int:
        """By how many days the latest expected end is after the deadline; 0 if it is not."""
        if not self.deadline or not self.forecast.end:
            return 0
        return max(0, (self.forecast.end.late - self.deadline).days)


def schedule_of(request: Request, progress: RequestNow | None, at: datetime) -> Schedule | None:
    """Return the schedule of an approved request that is still open."""
    if progress is None or request.approved_at is None or request.state in CLOSED:
        return None
    start = timezone.localdate(request.approved_at)
    now = timezone.localdate(at)
    forecast = progress.forecast
    end = forecast.end.likely if forecast.end else now
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
        days_overdue=max(0, (now - request.deadline).days) if request.deadline else 0,
    )


def _starts_by_itself(request: Request) -> bool:
    """Return whether a cluster starts a request; also true if it is not queued."""
    return request.state != RequestState.QUEUED or bool(automatic_clusters(request))


def _class_url(request: Request, *, sets: bool, requests: bool) -> str:
    """Return where a user sets or requests a priority class; empty if they may do neither."""
    if sets:
        return f"{request.get_absolute_url()}?do={PRIORITY}#do"
    if requests:
        return f"{request.get_absolute_url()}?do={RESCHEDULE}#do"
    return ""


def _attention(request: Request, schedule: Schedule | None) -> list[Attention]:
    """Return the needs for attention.

    A note that a request is late is left out if the schedule contradicts it: a worker updates the
    note moments after a change, while the page shows the change at once.
    """
    is_late = schedule is None or (schedule.slack is not None and schedule.slack.is_late)
    attention = []
    for row in request.attention.all():
        if row.kind != AttentionKind.LATE or is_late:
            attention.append(row)
    return attention


def next_by(
    request: Request,
    approval: Approval,
    attention: Sequence[Attention],
    *,
    starts_by_itself: bool = True,
    waits_for_cluster: bool = False,
) -> str:
    """Return who must act next on a request. Empty once it is closed.

    `starts_by_itself` is whether a cluster starts it once it is queued.
    """
    state = RequestState(request.state)
    if state in CLOSED:
        return ""
    if state == RequestState.AWAITING_APPROVAL:
        names = dict.fromkeys(chain.from_iterable(slot.people for slot in approval.missing))
        return ", ".join(list(names)[:3]) or "approvers"

    if waits_for_cluster or (state == RequestState.QUEUED and not starts_by_itself):
        return "approvers and shifters"
    waits = {state, *_kinds(attention)}
    roles = next((roles for wait, roles in RESPONSIBLE.items() if wait in waits), ())
    if AttentionKind.NEEDS_CHANGE in waits:
        roles = tuple(dict.fromkeys([*roles, *RESPONSIBLE[AttentionKind.NEEDS_CHANGE]]))
    named = {
        Role.LIAISON: f"liaisons of {request.experiment}",
        Role.APPROVER: "approvers",
        Role.SHIFTER: "shifters",
    }
    return get_text_list([named[role] for role in roles], "and") or "the portal"


def _kinds(attention: Sequence[Attention]) -> set[str]:
    return {row.kind for row in attention}


def _troubles(attention: Sequence[Attention]) -> set[str]:
    """Return the kinds of attention that block a request, which excludes being late."""
    return _kinds(attention) - {AttentionKind.LATE}


@dataclass(frozen=True)
class _Turn:
    """The status of a request, who must act next, and whether it waits for a cluster."""

    status: Status
    next_by: str
    lacks_cluster: bool


def _production_waits_for(
    request: Request,
    attention: Sequence[Attention],
    changes: Sequence[EndingChange],
    turn: _Turn,
) -> EndingChange | None:
    """Return what the production of a request waits for, unless it has other trouble."""
    obstacles = [change for change in changes if change.is_obstacle]
    is_stopped = turn.lacks_cluster or bool(_troubles(attention))
    if request.state != RequestState.RUNNING or is_stopped or not obstacles:
        return None
    return obstacles[0]


def _next_button(request: Request, attention: Sequence[Attention], user: User) -> Action | None:
    """Return the button of home and inbox for what needs attention, if this user may act on it."""
    kinds = _kinds(attention)
    if AttentionKind.STUCK in kinds and may_submit(user, request):
        return action_for(request, AttentionKind.STUCK, user)
    if kinds != {AttentionKind.LATE}:
        return None
    action = action_for(request, AttentionKind.LATE, user)
    return action if action.url != request.get_absolute_url() else None


#: How many events the overview shows.
LATEST = 3
#: The value of `?do=` that opens the priority form.
PRIORITY = "priority"
#: The value of `?do=` that opens the form for a later deadline and a requested class.
RESCHEDULE = "reschedule"
#: States in which data quality comes first on the page, and states with output.
_REVIEWED = frozenset({RequestState.DATA_QUALITY, RequestState.DONE, RequestState.DONE_PARTIAL})
_WITH_OUTPUT = _REVIEWED | {RequestState.RUNNING, RequestState.COMPLETING}


@dataclass(frozen=True)
class RequestPage:
    """What the page of a request shows, by its names in the template."""

    object: Request

    # Summary.
    status: Status
    steps: list[ProgressStep]
    next_by: str
    lacks_cluster: bool
    chooses_cluster: bool
    needed_changes: list[NeededChange]
    waits_for: EndingChange | None
    next_button: Action | None
    schedule: Schedule | None
    attention: list[Attention]
    has_started: bool
    in_data_quality: bool

    # What is requested, and what it needs.
    stages: list[tuple[Stage, list[ArgumentText]]]
    ingredients: list[ArgumentText]
    totals: Totals
    needs_impaired: list[RequiredService]
    needs_up: list[RequiredService]
    holds: list[ActiveHold]
    inputs: list[InputDataset]
    may_stage: bool

    # Its approval, and its place in the queue; both are computed only while it is open.
    approval: Approval
    submission_warnings: Warnings | None
    advice: SubmitAdvice | None
    estimate: Estimate | None
    start_estimate: StartEstimate | None
    queue_row: QueueRow | None
    queue_length: int
    changes_for_earlier_end: list[EndingChange]

    # Its production, once it is approved; `quality` once it has output.
    progress: RequestNow | None
    outputs: list[Output]
    uses: list[Use]
    quality: DataQuality | None

    # What people did and said, and requests that are related.
    events: list[Event]
    latest: list[Event]
    threads: list[Thread]
    open_threads: int
    related: list[Related]

    # What the user can do; `step` is the move whose form is open.
    moves: list[Transition]
    step: Transition | None
    sets_priority: bool
    by_class: list[tuple[str, int]]
    reschedules: bool
    class_request: Event | None
    may_edit: bool
    may_prioritise: bool
    may_reschedule: bool
    may_clone: bool
    may_keep: bool
    may_rearrange: bool

    # How the user follows it.
    level: str
    feeds: dict[str, str]


def request_page(
    *, request: Request, user: User, at: datetime, open_form: str = "", checks: bool = False
) -> RequestPage:
    """Return what the page of a request shows to a user.

    `open_form` is the verb of the move whose form is open, `PRIORITY` or `RESCHEDULE`. With
    `checks`, an open request is checked now; otherwise only while it waits for approval.
    """
    _read_current(request, at)
    slots = _slots_when_needed(request, user, at)
    moves = moves_for(user, request, at, slots=slots)
    approval = approval_of(request, user, at, slots=slots)
    events = list(events_of(request))
    threads = threads_of(request)
    content = content_of(request)
    holds = holds_over(request)
    needs = required_services(request, at)

    queue_row = queue_row_of(request, user=user, at=at)
    estimate = _estimate(request, content, queue_row, at)
    totals = totals_of(request)
    start_estimate = estimate_at_start(request, totals)
    progress, outputs, uses = _production(request, estimate, start_estimate, at)
    schedule = schedule_of(request, progress, at)
    prioritises = may_prioritise(user, request)
    reschedules = may_reschedule(user, request)
    sets_priority = open_form == PRIORITY and prioritises
    class_url = _class_url(request, sets=prioritises, requests=reschedules)
    changes = earlier_end(
        request, approval, estimate, progress, holds=holds, needs=needs, class_url=class_url, at=at
    )
    attention = _attention(request, schedule)
    needed = needed_changes(request, content, estimate or NO_ESTIMATE, at=at)
    advice = _advice(request, content, user, at)
    turn = _next_turn(request, user, events, approval, attention, progress, needed, advice, changes)
    return RequestPage(
        object=request,
        status=turn.status,
        steps=steps_of(request),
        next_by=turn.next_by,
        lacks_cluster=bool(open_form) and lacks_cluster(request),
        chooses_cluster=turn.lacks_cluster and may_submit(user, request),
        needed_changes=needed,
        waits_for=_production_waits_for(request, attention, changes, turn),
        next_button=_next_button(request, attention, user),
        schedule=schedule,
        attention=attention,
        has_started=request.state in IN_PRODUCTION and not has_rank(request),
        in_data_quality=request.state in _REVIEWED,
        stages=_texts_by_stage(request, content),
        ingredients=argument_texts(content.workflow.arguments, content.arguments),
        totals=totals,
        needs_impaired=[need for need in needs if need.row.state != State.UP],
        needs_up=[need for need in needs if need.row.state == State.UP],
        holds=holds,
        inputs=input_datasets(request, content),
        may_stage=may_stage(user, request),
        approval=approval,
        submission_warnings=_warnings(request, content, events, checks, at),
        advice=advice,
        estimate=estimate,
        start_estimate=start_estimate,
        queue_row=queue_row,
        queue_length=ranked_requests().count() if queue_row else 0,
        changes_for_earlier_end=changes,
        progress=progress,
        outputs=outputs,
        uses=uses,
        quality=data_quality_of(request) if request.state in _WITH_OUTPUT else None,
        events=events,
        latest=events[: -1 - LATEST : -1],
        threads=threads,
        open_threads=sum(thread.is_open for thread in threads),
        related=related_to(request),
        moves=moves,
        step=next((move for move in moves if move.verb == open_form), None),
        sets_priority=sets_priority,
        by_class=ranks_by_class(request, at=at) if sets_priority else [],
        reschedules=open_form == RESCHEDULE and reschedules,
        class_request=open_class_request(events),
        may_edit=may_edit(user, request) and may_change(request.state, content),
        may_prioritise=prioritises,
        may_reschedule=reschedules,
        may_clone=may(user, Actor.LIAISON, request),
        may_keep=may_manage(user, request.experiment_id),
        may_rearrange=request.state in BEFORE_PRODUCTION and may_rearrange(user, request),
        level=level_of(user, request),
        feeds=addresses_of(getattr(user, "notification_preferences", None), request),
    )


def _read_current(request: Request, at: datetime) -> None:
    """Read the attention of a request, and its forecast if the queue has changed since."""
    prefetch_related_objects([request], "attention")
    update_forecasts([request], at=at)


def _slots_when_needed(request: Request, user: User, at: datetime) -> Any:
    """Return the slots of a request, read once. Not every state needs them."""
    return SimpleLazyObject(lambda: slots_of(request, user, at))


def _next_turn(
    request: Request,
    user: User,
    events: list[Event],
    approval: Approval,
    attention: Sequence[Attention],
    progress: RequestNow | None,
    needed: Sequence[NeededChange],
    advice: SubmitAdvice | None,
    changes: Sequence[EndingChange],
) -> _Turn:
    """Return who must act next.

    A needed change comes after trouble, and before all else. An idle request waits for it.
    """
    troubles = _troubles(attention)
    without_cluster = not troubles - {AttentionKind.IDLE} and waits_for_cluster(request, progress)
    starts_by_itself = _starts_by_itself(request)
    status = status_of(
        request,
        events,
        user,
        attention=attention,
        to_sign=bool(approval.mine),
        starts_by_itself=starts_by_itself,
        waits_for=advice.waits_for if advice else "",
    )
    if without_cluster:
        status = status_without_cluster(status)
    whose_turn = next_by(
        request,
        approval,
        attention,
        starts_by_itself=starts_by_itself,
        waits_for_cluster=without_cluster,
    )
    if needed and not troubles - {AttentionKind.IDLE, AttentionKind.NEEDS_CHANGE}:
        marked = [mark.since for mark in attention if mark.kind == AttentionKind.NEEDS_CHANGE]
        status = replace(
            status,
            answer="Needs a change before it starts.",
            next_step="",
            since=marked[0] if marked else None,
            is_late=False,
        )
        whose_turn = f"liaisons of {request.experiment}"
    status = status_of_late(status, request, progress, changes)
    return _Turn(status, whose_turn, without_cluster)


def _warnings(
    request: Request, content: RequestContent, events: list[Event], checks: bool, at: datetime
) -> Warnings | None:
    """Return the warnings of the checks: as of now, or else as of the submission."""
    awaits_approval = request.state == RequestState.AWAITING_APPROVAL
    if awaits_approval or (checks and request.state not in CLOSED):
        return warnings_now(request, content, at=at)
    return warnings_at_submission(events)


def _estimate(
    request: Request, content: RequestContent, queue_row: QueueRow | None, at: datetime
) -> Estimate | None:
    """Return the estimate of an open request, with its end for its expected start."""
    if request.state in CLOSED:
        return None
    start = queue_row.start.days if queue_row and queue_row.start else None
    estimate = estimate_for(content, request.experiment, at, without=request)
    return with_expected_end(estimate, request, content, start=start, at=at)


def _advice(
    request: Request, content: RequestContent, user: User, at: datetime
) -> SubmitAdvice | None:
    """Return the advice on submitting jobs of an open request."""
    if request.state in CLOSED:
        return None
    return request_advice(content=content, experiment=request.experiment, user=user, at=at)


def _production(
    request: Request,
    estimate: Estimate | None,
    start_estimate: StartEstimate | None,
    at: datetime,
) -> tuple[RequestNow | None, list[Output], list[Use]]:
    """Return the progress, output and use of an approved request."""
    if not request.approved_at:
        return None, [], []
    progress = progress_now(request, at=at)
    outputs = outputs_of(progress)
    return progress, outputs, uses_of(request, progress, estimate, start_estimate, outputs)


def _texts_by_stage(
    request: Request, content: RequestContent
) -> list[tuple[Stage, list[ArgumentText]]]:
    """Return the arguments of each stage as texts."""
    stages = []
    for stage, stage_content in zip(request.stages.all(), content.stages, strict=True):
        declared = content.workflow.stage(stage_content.kind).arguments
        stages.append((stage, argument_texts(declared, stage_content.arguments)))
    return stages
