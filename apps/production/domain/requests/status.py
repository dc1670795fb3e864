"""The status of a request for its page: progress bar, summary, totals and required services."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from apps.accounts.models import User
from apps.core.models import Event
from apps.production.domain.actors import may
from apps.production.domain.approvals.inbox import first_in_queue, next_step, step_for
from apps.production.domain.approvals.waits import WAIT_KINDS
from apps.production.domain.priority.ranks import has_rank
from apps.production.enums import Actor, AttentionKind, RequestState
from apps.production.models import Attention, Request
from apps.statusboard.domain.board.board import BoardRow, read_board


@dataclass(frozen=True)
class ProgressStep:
    """A step of the progress bar. `place` is `done`, `now` or `ahead`."""

    label: str
    place: str
    note: str = ""


def steps_of(request: Request) -> list[ProgressStep]:
    """Return the steps of a request with its current one.

    For a request that ended early, the last step is its final state.
    """
    state = RequestState(request.state)
    if state in _ENDS:
        passed = [
            ("Draft", True),
            ("Approval", request.submitted_at),
            ("Queue", request.approved_at),
        ]
        steps = []
        for label, reached in passed:
            if reached:
                steps.append(ProgressStep(label, "done"))
        return [*steps, ProgressStep(state.label.capitalize(), "now")]
    place, note = _PLACES[state]
    labels = ("Draft", "Approval", "Queue", "Production", "Data quality", "Done")
    steps = [ProgressStep(label, "done") for label in labels[:place]]
    steps.append(ProgressStep(labels[place], "now", note))
    steps += [ProgressStep(label, "ahead") for label in labels[place + 1 :]]
    return steps


_ENDS = {RequestState.REJECTED, RequestState.CANCELLED, RequestState.SUPERSEDED}
_PLACES = {
    RequestState.DRAFT: (0, ""),
    RequestState.SUBMITTED: (1, "waiting for checks"),
    RequestState.CHECKING: (1, "checking"),
    RequestState.CHANGES_REQUESTED: (1, "changes requested"),
    RequestState.AWAITING_APPROVAL: (1, "awaiting signatures"),
    RequestState.APPROVED: (2, ""),
    RequestState.QUEUED: (2, ""),
    RequestState.TESTING: (3, "testing"),
    RequestState.RUNNING: (3, ""),
    RequestState.ON_HOLD: (3, "on hold"),
    RequestState.COMPLETING: (3, "jobs finished"),
    RequestState.DATA_QUALITY: (4, ""),
    RequestState.DONE: (5, ""),
    RequestState.DONE_PARTIAL: (5, "partial"),
}


@dataclass(frozen=True)
class RequestStatus:
    """The status of a request as text, its next step, since when, and its last move."""

    answer: str
    next_step: str
    last: Event | None
    since: datetime | None = None
    is_late: bool = False


def status_of(
    request: Request,
    events: Sequence[Event],
    user: User,
    *,
    attention: Sequence[Attention],
    to_sign: bool,
    starts_by_itself: bool = True,
    waits_for: str = "",
) -> RequestStatus:
    """Return the status for this user, by what needs `attention` if something does.

    `to_sign` is whether the request waits for their signature, `starts_by_itself` whether a cluster
    starts it once it is queued, `waits_for` what its jobs wait for, such as `samweb is up`.
    """
    state = RequestState(request.state)
    last = next((event for event in reversed(events) if event.new == state), None)
    since = last.at if last else None
    waits_for_start = state == RequestState.QUEUED and not starts_by_itself
    own_first = sorted(attention, key=lambda need: not _is_own(need, request, user))
    deciding = _deciding(own_first, state, waits_for_start=waits_for_start)
    if deciding:
        kind = AttentionKind(deciding.kind)
        answer = f"{kind.label.capitalize()}: {deciding.text.rstrip('.')}."
        is_late = kind == AttentionKind.LATE
        first_pk = None
        if is_late and has_rank(request):
            first_pk = first_in_queue()
        step = step_for(user, request, kind, next_step(request, kind, waits_for), first_pk=first_pk)
        return RequestStatus(answer, f"{step}.", last, deciding.since, is_late)
    summary, step = _status_texts(request, state, user, to_sign=to_sign)
    if waits_for_start:
        step = "An approver or shifter must start it: no cluster does so automatically."
    return RequestStatus(summary, step, last=last, since=since)


def _is_own(need: Attention, request: Request, user: User) -> bool:
    """Whether only liaisons can do something about this need, and the user is one."""
    is_for_liaisons = need.kind == AttentionKind.NEEDS_CHANGE
    return is_for_liaisons and may(user, Actor.LIAISON, request)


def _deciding(
    attention: Sequence[Attention], state: RequestState, *, waits_for_start: bool
) -> Attention | None:
    """Return the attention that the next step answers. Late comes after all other steps."""
    for need in attention:
        if need.kind != AttentionKind.LATE:
            return need
    if waits_for_start or state in WAIT_KINDS:
        return None
    return attention[0] if attention else None


def _status_texts(
    request: Request, state: RequestState, user: User, *, to_sign: bool
) -> tuple[str, str]:
    """Return a sentence on the state, and one on the next step."""
    if state == RequestState.DRAFT:
        if may(user, Actor.LIAISON, request):
            return "Not submitted yet.", "Complete and submit it."
        return "Not submitted yet.", f"Liaisons of {request.experiment} are writing it."

    if state == RequestState.AWAITING_APPROVAL and to_sign:
        return "Waiting for you.", f"{WAIT_KINDS[state].next_step}."

    if state == RequestState.CHANGES_REQUESTED:
        if may(user, Actor.LIAISON, request):
            who = "you"
        else:
            who = f"a liaison of {request.experiment}"
        return f"Waiting for {who}.", "Make the requested changes and submit again."

    return _STATUS_TEXTS.get(state, (f"{state.label.capitalize()}.", "This request is closed."))


_STATUS_TEXTS = {
    RequestState.SUBMITTED: ("Waiting for checks.", "It is then sent for approval, or returned."),
    RequestState.CHECKING: ("Checking.", "It is then sent for approval, or returned."),
    RequestState.AWAITING_APPROVAL: ("Waiting for signatures.", "Its requesters cannot sign it."),
    RequestState.APPROVED: ("Approved.", "It will be added to the queue."),
    RequestState.QUEUED: ("Queued.", "Requests start in order of rank."),
    RequestState.TESTING: ("Testing.", "Production starts once the test passes."),
    RequestState.RUNNING: ("In production.", "Data quality review follows once its jobs finish."),
    RequestState.ON_HOLD: ("On hold.", "No new jobs start until the OPG releases it."),
    RequestState.COMPLETING: ("Jobs finished.", "Data quality review is next."),
    RequestState.DATA_QUALITY: (
        "In data quality review.",
        "It is done once every check passes or is waived.",
    ),
}


@dataclass(frozen=True)
class RequestTotals:
    """Totals over all stages: jobs, and wall seconds if every job runs until its limit."""

    jobs: int
    wall_seconds: int


def totals_of(request: Request) -> RequestTotals:
    stages = request.stages.all()
    return RequestTotals(
        jobs=sum(stage.jobs or 0 for stage in stages),
        wall_seconds=sum((stage.jobs or 0) * (stage.wall_seconds or 0) for stage in stages),
    )


@dataclass(frozen=True)
class RequiredService:
    """A service that a request requires, its current state, and the stages that require it."""

    current: BoardRow
    stages: tuple[str, ...]


def required_services(request: Request, at: datetime) -> list[RequiredService]:
    users: dict[int, list[str]] = {}
    for stage in request.stages.all():
        for service in stage.services.all():
            users.setdefault(service.pk, []).append(stage.name or str(stage.position + 1))
    rows = read_board(at, days=0) if users else []
    required = []
    for board_row in rows:
        if board_row.service.pk in users:
            required.append(RequiredService(board_row, tuple(users[board_row.service.pk])))
    return required
