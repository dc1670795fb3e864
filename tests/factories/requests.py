"""Requests for tests, made by the services that make real ones."""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta

from apps.core.domain.events import new_event, publish_all
from apps.core.models import Event
from apps.production.domain.content.model import RequestContent, StageContent
from apps.production.domain.lifecycle.moves import SERVICES, approve_request, check_request, submit_request
from apps.production.domain.lifecycle.steps import apply_move
from apps.production.domain.priority.ranks import rank_of
from apps.production.domain.priority.rescoring import update_entry
from apps.production.domain.requests.drafts import create_draft
from apps.production.enums import PORTAL, SCORED, SIGNED, RequestState, Verb
from apps.production.events import kind_of_move
from apps.production.models import Request
from apps.quality.domain import runs as quality
from apps.quality.domain.standing import standing_of

AT = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)
#: When `request_in` makes its moves.
LATER = AT + timedelta(hours=1)


def stage(name: str = "generation", **changes: object) -> StageContent:
    values = {
        "name": name,
        "release": "v09_72",
        "configuration": f"{name}.fcl",
        "events": 20_000_000,
        "jobs": 4000,
        "memory_bytes": 4_000_000_000,
        "wall_seconds": 8 * 3600,
        "output_dataset": f"nova.mc.{name}",
    }
    return StageContent(**{**values, **changes})


def content(**changes: object) -> RequestContent:
    """A request of two stages that passes every check."""
    values = {
        "title": "ND rock muons, 2026 beam",
        "purpose": "For the December analysis freeze.",
        "deadline": date(2026, 12, 12),
        "stages": (stage("generation"), stage("simulation")),
    }
    return replace(RequestContent(), **{**values, **changes})


def draft(by, experiment, **changes: object) -> Request:
    return create_draft(experiment=experiment, content=content(**changes), by=by, at=AT)


S = RequestState
#: The way of a request into the queue: each move, the state it leads to, and who makes it.
WAY_TO_QUEUE = [
    (Verb.SUBMIT, S.SUBMITTED, "requester"),
    (Verb.CHECK, S.CHECKING, PORTAL),
    (Verb.PASS, S.AWAITING_APPROVAL, PORTAL),
    (Verb.APPROVE, S.APPROVED, "approver"),
    (Verb.QUEUE, S.QUEUED, PORTAL),
]
STATES_TO_QUEUE = [state for _, state, _ in WAY_TO_QUEUE]
#: How a request gets into the other states: the state before, the verb, and who makes the move.
WAYS = {
    S.CHANGES_REQUESTED: (S.AWAITING_APPROVAL, Verb.REQUEST_CHANGES, "approver"),
    S.REJECTED: (S.AWAITING_APPROVAL, Verb.REJECT, "approver"),
    S.TESTING: (S.QUEUED, Verb.TEST, "approver"),
    S.RUNNING: (S.QUEUED, Verb.START, "approver"),
    S.ON_HOLD: (S.RUNNING, Verb.HOLD, "approver"),
    S.COMPLETING: (S.RUNNING, Verb.COMPLETE, "approver"),
    S.DATA_QUALITY: (S.COMPLETING, Verb.REVIEW, "approver"),
    S.DONE: (S.DATA_QUALITY, Verb.DONE, "approver"),
    S.DONE_PARTIAL: (S.DATA_QUALITY, Verb.DONE_PARTIAL, "approver"),
    S.CANCELLED: (S.DRAFT, Verb.CANCEL, "requester"),
    S.SUPERSEDED: (S.QUEUED, Verb.SUPERSEDE, "requester"),
}
REASON = "for the freeze"


def request_in(state: str, *, by, experiment, approver, later: datetime = LATER, **changes: object) -> Request:
    """A request in this state, moved there at `later`: into the queue by its rows, from there by the services.

    The checks do not run, so their warnings are in no event, and an approver signs, whatever groups a rule names.
    Where that matters, use `request_moved_to`; `tests/production/test_factories.py` compares what both leave.
    """
    return _bring_to(S(state), _insert, by=by, experiment=experiment, approver=approver, at=later, **changes)


def request_moved_to(state: str, *, by, experiment, approver, later: datetime = LATER, **changes: object) -> Request:
    """A request brought to this state by the services alone."""
    return _bring_to(S(state), _move_to_queue, by=by, experiment=experiment, approver=approver, at=later, **changes)


def _bring_to(
    state: RequestState, start: Callable[..., Request], *, by, experiment, approver, at, **changes
) -> Request:
    if state not in WAYS:
        return start(draft(by, experiment, **changes), state, by=by, approver=approver, at=at)
    before, verb, who = WAYS[state]
    request = _bring_to(before, start, by=by, experiment=experiment, approver=approver, at=at, **changes)
    if before == S.DATA_QUALITY:
        pass_quality(request, approver, at=at)
    more = {"successor": draft(by, experiment)} if verb is Verb.SUPERSEDE else {}
    person = approver if who == "approver" else by
    return SERVICES[verb](request=request, by=person, at=at, reason=REASON, **more)


def _insert(request: Request, state: RequestState, *, by, approver, at: datetime) -> Request:
    """Write the rows that the moves of a draft on its way into the queue would leave."""
    if state == S.DRAFT:
        return request
    moves = WAY_TO_QUEUE[: STATES_TO_QUEUE.index(state) + 1]
    revision = request.revisions.get()
    request.state = state
    request.version += len(moves)
    request.submitted_at, request.submitted_by = at, by
    if state in SIGNED:
        request.approved_at, request.approved_by = at, approver
    request.save()
    request.revisions.create(
        version=revision.version + 1, content=revision.content, begun_at=at, at=at, by=by, is_submitted=True
    )
    if state == S.QUEUED:
        request.signatures.create(
            by=approver,
            made_by=by,
            sent_by=by,
            at=at,
            version=STATES_TO_QUEUE.index(S.APPROVED) + 1,
            content=revision.content,
        )
    if state in SCORED:
        update_entry(request=request, at=at)
    publish_all(events=_events_of(request, moves, people={"requester": by, "approver": approver}, at=at))
    return request


def _events_of(request: Request, moves: list[tuple], *, people: dict, at: datetime) -> list[Event]:
    data = {
        Verb.SUBMIT: {"checks": [], "checks_count": 0},
        Verb.PASS: {"checks": [], "checks_count": 0},
        Verb.QUEUE: {"rank_old": None, "rank_new": rank_of(request)},
    }
    events, old = [], S.DRAFT
    for verb, new, who in moves:
        reason = REASON if who in people else ""
        event = new_event(
            kind=kind_of_move(verb),
            target=request,
            by=people.get(who, who),
            at=at,
            old=old,
            new=new,
            reason=reason,
            data=data.get(verb),
        )
        events.append(event)
        old = new
    return events


def _move_to_queue(request: Request, state: RequestState, *, by, approver, at: datetime) -> Request:
    """Make the moves of a draft on its way into the queue."""
    if state == S.DRAFT:
        return request
    submit_request(request=request, by=by, at=at, reason=REASON)
    if state == S.SUBMITTED:
        return request
    if state == S.CHECKING:
        return apply_move(request, Verb.CHECK, by=PORTAL, at=at)
    check_request(request=request, at=at)
    if state == S.AWAITING_APPROVAL:
        return request
    if state == S.APPROVED:  # the portal passes through it at once, unless it is stopped just then
        return apply_move(
            request, Verb.APPROVE, by=approver, at=at, reason=REASON, approved_at=at, approved_by=approver
        )
    return approve_request(request=request, by=approver, at=at, reason=REASON)


def pass_quality(request: Request, approver, *, at: datetime = AT) -> None:
    """Have the checks of data quality run, and let the approver waive what does not pass."""
    quality.ask_for_run(request=request, by=PORTAL, at=at)
    quality.run_checks(request=request, at=at)
    for one in standing_of(request).open:
        quality.waive_result(request=request, result=one.pk, by=approver, at=at, reason="Looked at by hand.")
