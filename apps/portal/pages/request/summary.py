"""The summary of a request: its status, who acts next, and when it will end."""

from collections.abc import Sequence
from dataclasses import dataclass

from django.urls import reverse

from apps.accounts.models import User
from apps.core.models import Event
from apps.portal.pages.request.earlier_end import EndingChange
from apps.portal.pages.request.plan import Plan
from apps.portal.pages.request.schedule import Schedule
from apps.portal.pages.request.status import NextTurn, kinds_of, lacks_cluster, next_turn
from apps.production.domain.approvals.inbox import NextButton, action_for, first_in_queue
from apps.production.domain.priority.ranks import has_rank
from apps.production.domain.requests.status import ProgressStep, RequestStatus, steps_of
from apps.production.enums import EDITABLE, IN_PRODUCTION, AttentionKind, RequestState, Verb
from apps.production.models import Attention, Request
from apps.production.permissions import may_edit
from apps.progress.domain.progress import RequestNow
from apps.quality.permissions import may_waive
from apps.submission.domain.arrays.submissions import may_submit

#: States in which data quality comes first on the page.
_REVIEWED = frozenset({RequestState.DATA_QUALITY, RequestState.DONE, RequestState.DONE_PARTIAL})


@dataclass(frozen=True)
class Summary:
    """The status of a request, what it waits for, and what would help.

    `edits_first` is whether it must change before this user submits it.
    """

    status: RequestStatus
    steps: list[ProgressStep]
    next_by: str
    lacks_cluster: bool
    chooses_cluster: bool
    waits_for: EndingChange | None
    next_button: NextButton | None
    edits_first: bool
    schedule: Schedule | None
    changes_for_earlier_end: Sequence[EndingChange]
    attention: list[Attention]
    has_started: bool
    in_data_quality: bool


def summary_of(
    request: Request,
    user: User,
    *,
    plan: Plan,
    progress: RequestNow | None,
    schedule: Schedule | None,
    changes: Sequence[EndingChange],
    events: Sequence[Event],
    open_form: str,
) -> Summary:
    """Return the summary of a request. `changes` are those that would end it earlier."""
    attention = _attention(request, schedule)
    turn = next_turn(
        request,
        user,
        plan=plan,
        events=events,
        attention=attention,
        progress=progress,
        changes=changes,
    )

    # Other trouble comes before what its jobs wait for.
    waits_for = None
    troubles = kinds_of(attention) - {AttentionKind.LATE}
    is_stopped = bool(turn.lacks_cluster or turn.failed_test or troubles)
    if request.state in (RequestState.TESTING, RequestState.RUNNING) and not is_stopped:
        waits_for = next((change for change in changes if change.is_obstacle), None)

    edit_button = _edit_button(request, plan, turn.status, events, user)
    # The form to start it is the next step itself.
    waits_for_start = _waits_for_start(request, turn, attention) and open_form != Verb.START
    if plan.needed_changes:
        waits_for_start = False

    return Summary(
        status=turn.status,
        steps=steps_of(request),
        next_by=turn.next_by,
        lacks_cluster=bool(open_form) and lacks_cluster(request),
        chooses_cluster=turn.lacks_cluster and may_submit(user, request),
        waits_for=waits_for,
        next_button=edit_button
        or _next_button(request, attention, user, waits_for_start=waits_for_start),
        edits_first=edit_button is not None,
        schedule=schedule,
        changes_for_earlier_end=changes,
        attention=attention,
        has_started=request.state in IN_PRODUCTION and not has_rank(request),
        in_data_quality=request.state in _REVIEWED,
    )


def _attention(request: Request, schedule: Schedule | None) -> list[Attention]:
    """Return the needs for attention.

    A note that a request is late is left out if the schedule contradicts it: a worker updates the
    note moments after a change, while the page shows the change at once. For the same reason, the
    note has the days of the schedule.
    """
    is_late = schedule is None or (schedule.slack is not None and schedule.slack.is_late)
    attention = []
    for need in request.attention.all():
        if need.kind == AttentionKind.LATE and not is_late:
            continue
        if need.kind == AttentionKind.LATE and schedule is not None:
            need.text = schedule.late_reason or need.text
        attention.append(need)
    return attention


def _edit_button(
    request: Request, plan: Plan, status: RequestStatus, events: Sequence[Event], user: User
) -> NextButton | None:
    """Return the button that opens the form, if a request must change before it is submitted.

    It must if changes are requested and it was not edited since, or if the checks found errors.
    """
    state = RequestState(request.state)
    if state not in EDITABLE or not may_edit(user, request):
        return None
    has_errors = bool(plan.submission_warnings and plan.submission_warnings.errors)
    is_to_change = state == RequestState.CHANGES_REQUESTED and not any(
        event.kind == "request.edited" and status.since and event.at > status.since
        for event in events
    )
    return action_for(request, state, user) if has_errors or is_to_change else None


def _next_button(
    request: Request, attention: Sequence[Attention], user: User, *, waits_for_start: bool
) -> NextButton | None:
    """Return the button for what needs attention or review, if this user may act on it."""
    if request.state == RequestState.DATA_QUALITY and may_waive(user, request):
        return NextButton("Review data quality", reverse("quality:request", args=[request.key]))
    kinds = kinds_of(attention)
    if AttentionKind.STUCK in kinds and may_submit(user, request):
        return action_for(request, AttentionKind.STUCK, user)
    if waits_for_start and may_submit(user, request):
        return action_for(request, AttentionKind.IDLE, user)
    if kinds != {AttentionKind.LATE}:
        return None
    first_pk = None
    if has_rank(request):
        first_pk = first_in_queue()
    action = action_for(request, AttentionKind.LATE, user, first_pk=first_pk)
    return action if action.url != request.get_absolute_url() else None


def _waits_for_start(request: Request, turn: NextTurn, attention: Sequence[Attention]) -> bool:
    """Whether a queued request starts only if someone starts it."""
    if request.state != RequestState.QUEUED:
        return False
    return AttentionKind.IDLE in kinds_of(attention) or not turn.starts_by_itself
