"""Requests for tests: inserted as the rows that the services leave,
or moved by the services themselves.
"""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta

from django.db import transaction

from apps.accounts.permissions import is_liaison
from apps.core.domain.events import new_event, publish_all
from apps.core.models import Event
from apps.production.domain.content.model import FIELDS, RequestContent, StageContent
from apps.production.domain.content.serialization import plain
from apps.production.domain.lifecycle.moves import (
    MOVE_FUNCTIONS,
    approve_request,
    check_request,
    submit_request,
)
from apps.production.domain.lifecycle.steps import apply_move
from apps.production.domain.priority.ranks import entries_ahead, rank_of
from apps.production.domain.priority.rescoring import update_entry
from apps.production.domain.requests.drafts import create_draft, write_stages
from apps.production.domain.types.versions import version_of, workflow_of
from apps.production.enums import PORTAL, SCORED, SIGNED, RequestState, Verb
from apps.production.events import kind_of_move
from apps.production.models import Request, RequestCounter, RequestRevision
from apps.quality.domain import runs as quality
from apps.quality.domain.data_quality import data_quality_of
from apps.quality.models import Finding, Waiver
from apps.statusboard.models import Service

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
    """A draft, inserted by its rows. The shape of its content is not checked."""
    return _insert(S.DRAFT, by=by, experiment=experiment, **changes)


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
#: The way of a queued request to its review, in the same form.
WAY_TO_REVIEW = [
    (Verb.START, S.RUNNING, "approver"),
    (Verb.COMPLETE, S.COMPLETING, "approver"),
    (Verb.REVIEW, S.DATA_QUALITY, "approver"),
]
STATES_TO_REVIEW = [state for _, state, _ in WAY_TO_REVIEW]
#: How a request gets into the other states: the state before, the verb, and who makes the move.
WAYS = {
    S.CHANGES_REQUESTED: (S.AWAITING_APPROVAL, Verb.REQUEST_CHANGES, "approver"),
    S.REJECTED: (S.AWAITING_APPROVAL, Verb.REJECT, "approver"),
    S.TESTING: (S.QUEUED, Verb.TEST, "approver"),
    S.ON_HOLD: (S.RUNNING, Verb.HOLD, "approver"),
    S.DONE: (S.DATA_QUALITY, Verb.DONE, "approver"),
    S.DONE_PARTIAL: (S.DATA_QUALITY, Verb.DONE_PARTIAL, "approver"),
    S.CANCELLED: (S.DRAFT, Verb.CANCEL, "requester"),
    S.SUPERSEDED: (S.QUEUED, Verb.SUPERSEDE, "requester"),
}
REASON = "for the freeze"
WAIVED = "Looked at by hand."


def request_in(
    state: str, *, by, experiment, approver, later: datetime = LATER, **changes: object
) -> Request:
    """A request in this state since `later`: as far as its review by its rows,
    from there by the services.

    The checks do not run, so their warnings are in no event, and an approver signs, whatever groups
    a rule names. Where that matters, use `request_moved_to`; `tests/production/test_factories.py`
    compares what both leave.
    """
    people = {"by": by, "experiment": experiment, "approver": approver}
    return _bring_to(S(state), _insert, _waive_at_once, **people, at=later, **changes)


def request_moved_to(
    state: str, *, by, experiment, approver, later: datetime = LATER, **changes: object
) -> Request:
    """A request brought to this state by the services alone."""
    people = {"by": by, "experiment": experiment, "approver": approver}
    return _bring_to(S(state), _move, _waive_one_by_one, **people, at=later, **changes)


def _bring_to(
    state: RequestState,
    start: Callable[..., Request],
    waive: Callable[..., None],
    *,
    by,
    experiment,
    approver,
    at: datetime,
    **changes: object,
) -> Request:
    people = {"by": by, "experiment": experiment, "approver": approver}
    if state not in WAYS:
        return start(state, **people, at=at, **changes)
    before, verb, who = WAYS[state]
    request = _bring_to(before, start, waive, **people, at=at, **changes)
    if before == S.DATA_QUALITY:
        _run_quality_checks(request, at=at)
        waive(request, approver, at=at)
    more = {"successor": draft(by, experiment)} if verb is Verb.SUPERSEDE else {}
    person = approver if who == "approver" else by
    return MOVE_FUNCTIONS[verb](request=request, by=person, at=at, reason=REASON, **more)


@transaction.atomic
def _insert(
    state: RequestState, *, by, experiment, approver=None, at: datetime = LATER, **changes: object
) -> Request:
    """Write the rows that `create_draft` and the moves to the state leave;
    `at` is when the moves were made.
    """
    people = {"by": by, "experiment": experiment, "approver": approver}
    if state in STATES_TO_REVIEW:
        request, events = _write_request(S.QUEUED, **people, at=at, **changes)
        events += _write_production(request, state, approver, at=at)
    else:
        request, events = _write_request(state, **people, at=at, **changes)
    publish_all(events=events)
    return request


def _write_request(
    state: RequestState, *, by, experiment, approver, at: datetime, **changes: object
) -> tuple[Request, list[Event]]:
    """Write the rows of a request as far as the queue. Return it with its events, not published."""
    assert is_liaison(by, experiment.pk)
    request_content = content(**changes)
    moves = WAY_TO_QUEUE[: STATES_TO_QUEUE.index(state) + 1] if state != S.DRAFT else []

    counter, _ = RequestCounter.objects.select_for_update().get_or_create(experiment=experiment)
    counter.last += 1
    counter.save(update_fields=["last"])
    request = Request(
        key=f"{experiment.key}-{counter.last:04d}",
        experiment=experiment,
        workflow=version_of(request_content.workflow, experiment=experiment, at=AT),
        arguments=dict(request_content.arguments),
        state=state,
        version=1 + len(moves),
        created_by=by,
        created_at=AT,
        editor_ids=[by.pk],
        **{name: getattr(request_content, name) for name in FIELDS},
    )
    if moves:
        request.submitted_at, request.submitted_by = at, by
    if state in SIGNED:
        request.approved_at, request.approved_by = at, approver
    request.save(force_insert=True)
    stages = _insert_stages(request, request_content)

    stored = plain(replace(request_content, workflow=workflow_of(request.workflow), stages=stages))
    drafted = RequestRevision(request=request, version=1, content=stored, begun_at=AT, at=AT, by=by)
    submitted = RequestRevision(
        request=request, version=2, content=stored, begun_at=at, at=at, by=by, is_submitted=True
    )
    RequestRevision.objects.bulk_create([drafted, submitted] if moves else [drafted])
    if state == S.QUEUED:
        request.signatures.create(
            by=approver,
            made_by=by,
            sent_by=by,
            at=at,
            version=STATES_TO_QUEUE.index(S.APPROVED) + 1,
            content=stored,
        )
    if state in SCORED:
        update_entry(request=request, at=at)
    created = new_event(kind="request.created", target=request, by=by, at=AT, new=S.DRAFT)
    checked = {"checks": [], "checks_count": 0, "checks_messages": 0}
    ranks = {"rank_old": None, "rank_new": rank_of(request)}
    data = {Verb.SUBMIT: checked, Verb.PASS: checked, Verb.QUEUE: ranks}
    people = {"requester": by, "approver": approver}
    moved = _events_of(request, moves, old=S.DRAFT, people=people, at=at, data=data)
    return request, [created, *moved]


def _write_production(
    request: Request, state: RequestState, approver, *, at: datetime
) -> list[Event]:
    """Write what the moves of a queued request as far as the state leave. Return their events."""
    moves = WAY_TO_REVIEW[: STATES_TO_REVIEW.index(state) + 1]
    entry = request.queue_entry
    ranks = {"rank_old": entries_ahead(entry).count() + 1, "rank_new": None}
    request.state, request.version, request.work_began_at = state, request.version + len(moves), at
    request.estimated_core_seconds = entry.core_seconds
    request.save(update_fields=["state", "version", "work_began_at", "estimated_core_seconds"])
    if state in SCORED:
        # The estimate would be the same again.
        entry.is_queued, entry.sized_version = False, request.version
        entry.save(update_fields=["is_queued", "sized_version"])
    else:
        entry.delete()
    return _events_of(
        request, moves, old=S.QUEUED, people={"approver": approver}, at=at, data={Verb.START: ranks}
    )


def _insert_stages(request: Request, request_content: RequestContent) -> tuple[StageContent, ...]:
    """Write the stages of a request with their services;
    return them with the services in the order of their names.
    """
    write_stages(request, request_content)
    slugs = {slug for stage_content in request_content.stages for slug in stage_content.services}
    if not slugs:
        return request_content.stages
    ordered = list(Service.objects.filter(slug__in=slugs).values_list("slug", flat=True))
    return tuple(
        replace(
            stage_content,
            services=tuple(slug for slug in ordered if slug in stage_content.services),
        )
        for stage_content in request_content.stages
    )


def _events_of(
    request: Request,
    moves: list[tuple],
    *,
    old: RequestState,
    people: dict,
    at: datetime,
    data: dict[Verb, dict],
) -> list[Event]:
    events = []
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


def _move(
    state: RequestState, *, by, experiment, approver, at: datetime, **changes: object
) -> Request:
    """Create a draft and make its moves as far as the state."""
    if state in STATES_TO_REVIEW:
        request = _move(S.QUEUED, by=by, experiment=experiment, approver=approver, at=at, **changes)
        for verb, _, _ in WAY_TO_REVIEW[: STATES_TO_REVIEW.index(state) + 1]:
            MOVE_FUNCTIONS[verb](request=request, by=approver, at=at, reason=REASON)
        return request
    request = create_draft(experiment=experiment, content=content(**changes), by=by, at=AT)
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
            request,
            Verb.APPROVE,
            by=approver,
            at=at,
            reason=REASON,
            approved_at=at,
            approved_by=approver,
        )
    return approve_request(request=request, by=approver, at=at, reason=REASON)


def pass_quality(request: Request, approver, *, at: datetime = AT) -> None:
    """Have the checks of data quality run, and waive what does not pass for the approver."""
    _run_quality_checks(request, at=at)
    _waive_at_once(request, approver, at=at)


def _run_quality_checks(request: Request, *, at: datetime) -> None:
    quality.ask_for_run(request=request, by=PORTAL, at=at)
    quality.run_checks(request=request, at=at)


def _waive_one_by_one(request: Request, approver, *, at: datetime) -> None:
    for result in data_quality_of(request).open:
        quality.waive_result(request=request, result=result.pk, by=approver, at=at, reason=WAIVED)


def _waive_at_once(request: Request, approver, *, at: datetime) -> None:
    """Write the rows that waiving the open results one by one would leave."""
    results = data_quality_of(request).open
    waivers = [
        Waiver(
            request=request,
            run_number=result.run.number,
            reason=WAIVED,
            at=at,
            by=approver,
            made_by=request.created_by,
            sent_by=request.submitted_by,
            **{field.name: getattr(result, field.name) for field in Finding._meta.fields},
        )
        for result in results
    ]
    Waiver.objects.bulk_create(waivers)
    events = []
    for waiver in waivers:
        parts = [waiver.stage_name, waiver.title, waiver.subject]
        check = ": ".join(part for part in parts if part)
        data = {"waiver": waiver.pk, "check": check, "said": waiver.why, "in_part": False}
        event = new_event(
            kind="request.waive", target=request, by=approver, at=at, reason=WAIVED, data=data
        )
        events.append(event)
    publish_all(events=events)
