"""Writing, moving and prioritising requests: each a service that also writes its event."""

from collections.abc import Callable
from datetime import datetime
from functools import partial
from typing import Any

from django.db import transaction

from apps.accounts.models import Experiment, User
from apps.accounts.permissions import is_liaison
from apps.core.errors import InvalidFields, InvalidTransition, NotAllowed, StaleState
from apps.core.queue import enqueue
from apps.core.selectors import events_of
from apps.core.services import publish
from apps.core.workflow import move
from apps.production import signing
from apps.production.approvals import slots_of
from apps.production.changing import Judged, judge, may_change
from apps.production.checks import Finding, check_shape, examine, messages_of
from apps.production.content import FIELDS, STAGE_FIELDS, RequestContent
from apps.production.enums import (
    CLOSED,
    EDITABLE,
    MOVES,
    PORTAL,
    PRIORITISED,
    WRITTEN,
    RequestState,
    Transition,
    Verb,
    Who,
    actor_of,
    transitions_from,
)
from apps.production.gathering import basic_facts, facts_for
from apps.production.guards import refusal_of
from apps.production.models import Request, RequestCounter, Stage
from apps.production.permissions import is_requester, may
from apps.production.priority import placing, standing
from apps.production.priority.level import check_level, level_of
from apps.production.priority.order import SCORED, rank_of
from apps.production.reasons import MAX_REASON, checked_reason, reason_problems
from apps.production.revisions import TOGETHER, keep_revision
from apps.production.selectors import content_of
from apps.production.workflow_types import version_of
from apps.services.models import Service

#: An event lists no more changed fields than this.
MAX_CHANGES = 100


@transaction.atomic
def create_draft(
    *, experiment: Experiment, content: RequestContent, by: User, at: datetime, origin: dict[str, Any] | None = None
) -> Request:
    """Make a draft under the experiment's next number. Raises `NotAllowed`, `InvalidFields`.

    `origin`, for its event, tells which requests it comes from; who may make it of them was asked there.
    """
    if origin is None and not is_liaison(by, experiment.pk):
        raise NotAllowed(f"Only a liaison of {experiment} may write its requests.")
    _check_shape(content, at)
    request = Request.objects.create(
        key=_next_key(experiment),
        experiment=experiment,
        workflow=version_of(content.workflow, experiment=experiment, at=at),
        arguments=dict(content.arguments),
        created_by=by,
        created_at=at,
        **{name: getattr(content, name) for name in FIELDS},
    )
    _write_stages(request, content)
    keep_revision(request=request, by=by, at=at)
    publish(kind="request.created", target=request, by=by, at=at, new=request.state, data=origin)
    return request


@transaction.atomic
def save_draft(
    *,
    request: Request,
    content: RequestContent,
    version: int,
    by: User,
    at: datetime,
    reason: str = "",
    typing: bool = False,
) -> Request:
    """Write a request anew, as the person saw it at `version`; nothing happens when nothing differs.

    A material change of one that is signed, or about to be, withdraws its signatures and sends it to be checked again.
    With `typing`, saves of a draft by one person that follow each other are one event; nothing signed is saved so.
    Raises `NotAllowed`, `InvalidTransition` when it is past writing, `InvalidFields`, `StaleState` when somebody
    else changed it since that version: then nothing is overwritten.
    """
    if not may(by, Who.LIAISON, request):
        raise NotAllowed(f"Only a liaison of {request.experiment} may write its requests.")
    _lock(request, version)
    old = content_of(request)
    if request.state not in EDITABLE and (typing or not may_change(request.state, old)):
        raise InvalidTransition(f"{request} is {_words(request)} and can be changed no more.")
    _check_shape(content, at)
    judged = judge(request.state, old, content)
    if not judged.changes:
        return request
    if request.state not in EDITABLE:
        _check_change(request, judged, content, at)
    short = [{name: text[:200] for name, text in change.items()} for change in judged.changes[:MAX_CHANGES]]
    data = {"changes": short, "count": len(judged.changes)}
    _write_content(request, content)
    if judged.material:
        data["withdrawn"] = signing.withdraw_all(request=request, by=by, at=at, reason="What was signed was changed.")
    if judged.material and request.state not in EDITABLE:
        stamps = {"submitted_at": at, "submitted_by": by, "approved_at": None, "approved_by": None}
        _move(request, Verb.CHANGE, by=by, at=at, reason=reason, data=data, **stamps)
        keep_revision(request=request, by=by, at=at, submitted=True)
        enqueue("apps.production.tasks.check_request", request_id=request.pk)
        return request
    request.version += 1
    request.save(update_fields=["version"])
    if request.state in SCORED:
        standing.follow_request(request=request, at=at)
    keep_revision(request=request, by=by, at=at)
    if not (typing and request.state == RequestState.DRAFT and _edited_just_now(request, by, at)):
        publish(kind="request.edited", target=request, by=by, at=at, reason=reason.strip(), data=data)
    return request


def _edited_just_now(request: Request, by: User, at: datetime) -> bool:
    last = events_of(request).last()
    return last is not None and last.kind == "request.edited" and last.actor == str(by) and at - last.at < TOGETHER


@transaction.atomic
def submit_request(
    *, request: Request, by: User, at: datetime, reason: str = "", version: int | None = None
) -> Request:
    """Send a complete request to be checked. Raises `InvalidFields` with every problem, and what `_move` raises."""
    _guard(request, Verb.SUBMIT, by, at)
    _lock(request, version)
    findings = _examine(request, at)
    problems = messages_of(found for found in findings if found.blocks)
    if problems and transitions_from(request.state, Verb.SUBMIT):
        raise InvalidFields(problems)
    if transitions_from(request.state, Verb.SUBMIT):
        signing.withdraw_of_requester(request=request, by=by, at=at)
    stamps = {"submitted_at": at, "submitted_by": by}
    _move(request, Verb.SUBMIT, by=by, at=at, reason=reason, data=_said(findings), **stamps)
    keep_revision(request=request, by=by, at=at, submitted=True)
    enqueue("apps.production.tasks.check_request", request_id=request.pk)
    return request


@transaction.atomic
def check_request(*, request: Request, at: datetime) -> Request:
    """Check a submitted request once more, as it may have waited; pass it on, or give it back with what is wrong.

    Raises `InvalidTransition` where it waits for no check.
    """
    _lock(request, None)
    _move(request, Verb.CHECK, by=PORTAL, at=at)
    findings = _examine(request, at)
    problems = messages_of(found for found in findings if found.blocks)
    if not problems:
        return _move(request, Verb.PASS, by=PORTAL, at=at, data=_said(findings))
    words = [f"{path}: {message}" for path, messages in problems.items() for message in messages]
    return _move(request, Verb.FAIL, by=PORTAL, at=at, reason="\n".join(words)[:MAX_REASON])


@transaction.atomic
def approve_request(
    *, request: Request, by: User, at: datetime, reason: str = "", version: int | None = None, group: str = ""
) -> Request:
    """Sign a request for the groups of this person, or the one named; with the last signature it goes to the queue.

    Raises what `_move` raises, and `InvalidTransition` where somebody of the group has signed already.
    """
    _guard(request, Verb.APPROVE, by, at)
    _lock(request, version)
    _step(request, Verb.APPROVE)
    reason = checked_reason(reason, needed=False)
    made, complete = signing.sign(request=request, content=content_of(request), by=by, at=at, group=group)
    data = signing.signed_for(made)
    if not complete:
        return _tell(request, "request.sign", by=by, at=at, reason=reason, data=data)
    _move(request, Verb.APPROVE, by=by, at=at, reason=reason, data=data, approved_at=at, approved_by=by)
    return _move(request, Verb.QUEUE, by=PORTAL, at=at)


@transaction.atomic
def withdraw_signature(
    *, request: Request, signature: int, by: User, at: datetime, reason: str, version: int | None = None
) -> Request:
    """Take back a signature, by its number, while others are still missing.

    Raises `NotAllowed`, `InvalidTransition`, `InvalidFields` for a missing reason, `StaleState`.
    """
    _lock(request, version)
    if request.state != RequestState.AWAITING_APPROVAL:
        raise InvalidTransition(f"{request} is {_words(request)}: a signature can be withdrawn no more.")
    reason = checked_reason(reason)
    taken = signing.withdraw_own(request=request, signature=signature, by=by, at=at, reason=reason)
    return _tell(request, "request.withdraw_signature", by=by, at=at, reason=reason, data=signing.signed_for([taken]))


@transaction.atomic
def supersede_request(
    *,
    request: Request,
    by: User,
    at: datetime,
    reason: str,
    version: int | None = None,
    successor: Request | None = None,
    data: dict[str, Any] | None = None,
) -> Request:
    """Let another request of the experiment take the place of this one. Raises what `_move` raises."""
    _guard(request, Verb.SUPERSEDE, by, at)
    if successor is None or successor.experiment_id != request.experiment_id or successor.pk == request.pk:
        raise InvalidFields({"successor": ["Name another request of this experiment, which takes its place."]})
    _lock(request, version)
    request.superseded_by = successor
    return _move(request, Verb.SUPERSEDE, by=by, at=at, reason=reason, data=data, superseded_by=successor)


@transaction.atomic
def make_move(
    *,
    verb: Verb,
    request: Request,
    by: User | str,
    at: datetime,
    reason: str = "",
    version: int | None = None,
    data: dict[str, Any] | None = None,
) -> Request:
    """Make a move that changes nothing but the state; `data` goes into its event. Raises what `_move` raises."""
    _lock(request, version)
    return _move(request, verb, by=by, at=at, reason=reason, data=data)


@transaction.atomic
def set_priority(
    *,
    request: Request,
    by: User,
    at: datetime,
    reason: str,
    priority: int | None = None,
    priority_class: str | None = None,
    version: int | None = None,
) -> Request:
    """Set the class, the number within it, or both; what is None stays. The score decides again where it goes.

    The event tells both, and the rank, before and after. Raises `NotAllowed`, `InvalidTransition`, `InvalidFields`,
    `StaleState`.
    """
    if not may(by, Who.APPROVER, request):
        raise NotAllowed(_refusal(request, by, Who.APPROVER))
    _lock(request, version)
    if request.state not in PRIORITISED:
        raise InvalidTransition(f"{request} is {_words(request)}: its priority does not matter now.")
    problems = reason_problems(reason) | check_level(priority_class, priority)
    if problems:
        raise InvalidFields(problems)
    old, rank_before = level_of(request), rank_of(request)
    request.priority = request.priority if priority is None else priority
    request.priority_class = request.priority_class if priority_class is None else priority_class
    request.version += 1
    request.save(update_fields=["priority", "priority_class", "version"])
    standing.let_score_decide(request=request)
    standing.follow_request(request=request, at=at)
    placing.note_change(standing.lock_queue(), by=by, at=at, what=f"{request} is now {level_of(request)}")
    publish(
        kind="request.priority_set",
        target=request,
        by=by,
        at=at,
        old=old,
        new=level_of(request),
        reason=reason.strip(),
        data={"rank_old": rank_before, "rank_new": rank_of(request)},
    )
    return request


def _examine(request: Request, at: datetime, content: RequestContent | None = None) -> list[Finding]:
    """Ask every check about a request as it is now, or as it would be."""
    content = content_of(request) if content is None else content
    return examine(content, facts_for(content, experiment=request.experiment, request=request, at=at))


def _said(findings: list[Finding]) -> dict[str, Any]:
    """Return what an event keeps of the checks: what the request was let through with."""
    said = [
        {"rule": found.rule, "severity": found.severity.value, "path": found.path, "message": found.message[:500]}
        for found in findings
        if not found.blocks
    ]
    return {"checks": said[:MAX_CHANGES], "checks_count": len(said)}


def _move(
    request: Request,
    verb: Verb,
    *,
    by: User | str,
    at: datetime,
    reason: str = "",
    data: dict[str, Any] | None = None,
    **changes: Any,
) -> Request:
    """Make one move of the table and write its event, with `data` in it.

    Raises `NotAllowed`, `InvalidTransition`, `InvalidFields` for a missing reason, `StaleState`.
    """
    _guard(request, verb, by, at)
    step = _step(request, verb)
    reason = checked_reason(reason, needed=step.reason_needed)
    rank_before = rank_of(request)
    changes |= _stamps(request, step, by, at)
    move(request, to=step.new, transitions=MOVES, version=request.version + 1, **changes)
    if {step.old, step.new} & SCORED:
        standing.follow_request(request=request, at=at)
    publish(
        kind=f"request.{step.verb.name.lower()}",
        target=request,
        by=by,
        at=at,
        old=step.old,
        new=step.new,
        reason=reason,
        data={**_ranks(step, request, rank_before), **(data or {})},
    )
    return request


def _tell(request: Request, kind: str, *, by: User, at: datetime, reason: str, data: dict[str, Any]) -> Request:
    """Write what happened to a request that stays in its state; who has read it before must look again."""
    request.version += 1
    request.save(update_fields=["version"])
    publish(kind=kind, target=request, by=by, at=at, reason=reason.strip(), data=data)
    return request


def _step(request: Request, verb: Verb) -> Transition:
    """Return the one move that the verb makes now. Raises `InvalidTransition` with why there is none."""
    steps = transitions_from(request.state, verb)
    if not steps:
        raise InvalidTransition(f"{request} is {_words(request)}: “{verb.label}” is not possible now.")
    refusals = [refusal_of(step, request) for step in steps]
    if "" not in refusals:
        raise InvalidTransition(f"{request}: “{verb.label}” is not possible now: {refusals[0]}")
    return steps[refusals.index("")]


def _stamps(request: Request, step: Transition, by: User | str, at: datetime) -> dict[str, Any]:
    """Return what a move writes beside the state."""
    stamps: dict[str, Any] = {"held_from": step.old if step.new == RequestState.HELD else ""}
    if step.new in CLOSED and step.old not in CLOSED:
        stamps |= {"closed_at": at, "closed_by": by if isinstance(by, User) else None}
    return stamps


#: The service of each verb, for the edges that offer them all. Those of the portal itself are not among them, nor those
#: that come along with writing.
SERVICES: dict[Verb, Callable[..., Request]] = {
    verb: partial(make_move, verb=verb) for verb in Verb if actor_of(verb) is not Who.PORTAL and verb not in WRITTEN
} | {Verb.SUBMIT: submit_request, Verb.APPROVE: approve_request, Verb.SUPERSEDE: supersede_request}


def _guard(request: Request, verb: Verb, by: User | str, at: datetime) -> None:
    if not may(by, actor_of(verb), request, at):
        raise NotAllowed(_refusal(request, by, actor_of(verb)))


def _refusal(request: Request, by: User | str, who: Who) -> str:
    if who in {Who.APPROVER, Who.SIGNER, Who.DECIDER} and is_requester(by, request):
        return f"You made or submitted {request}: somebody else of the OPG must decide."
    signers = ", ".join(slot.group.name for slot in slots_of(request) if slot.group)
    if who in {Who.SIGNER, Who.DECIDER} and signers:
        more = "" if who is Who.SIGNER else " and approvers of the OPG"
        return f"Only people of {signers}{more} may do this."
    return {
        Who.LIAISON: f"Only a liaison of {request.experiment} may do this.",
        Who.APPROVER: "Only an approver of the OPG may do this.",
        Who.SIGNER: "Only an approver of the OPG may do this.",
        Who.DECIDER: "Only an approver of the OPG may do this.",
        Who.OPERATOR: "Only an approver or a shifter of the OPG may do this.",
        Who.OPERATOR_OR_PORTAL: "Only an approver or a shifter of the OPG may do this.",
        Who.EITHER: f"Only a liaison of {request.experiment} or an approver of the OPG may do this.",
        Who.PORTAL: "Only the portal itself does this.",
    }[who]


def _lock(request: Request, version: int | None) -> None:
    """Hold the row, and make sure that it still is as it was read, and as the person has seen it: `version`."""
    current: Request = Request.objects.select_for_update().get(pk=request.pk)
    if request.version != current.version or version not in {None, current.version}:
        last = events_of(request).exclude(actor=PORTAL).exclude(kind__regex="^request.(comment|moved)").last()
        who = f" by {last.actor}" if last else ""
        raise StaleState(f"{request} was changed{who} meanwhile: it is now {_words(current)}. Nothing was overwritten.")


def _check_change(request: Request, judged: Judged, content: RequestContent, at: datetime) -> None:
    """Refuse what may not be changed in this state, and what would leave the request incomplete."""
    if judged.refused:
        raise InvalidFields(judged.refused)
    touched = {change["path"] for change in judged.changes}
    findings = [found for found in _examine(request, at, content) if found.blocks]
    problems = messages_of(found for found in findings if judged.material or found.path in touched)
    if problems:
        raise InvalidFields(problems)


def _check_shape(content: RequestContent, at: datetime) -> None:
    problems = check_shape(content, basic_facts(at))
    if problems:
        raise InvalidFields(problems)


def _next_key(experiment: Experiment) -> str:
    """Count on; the locked row makes others wait, and a rollback gives the number back."""
    counter, _ = RequestCounter.objects.select_for_update().get_or_create(experiment=experiment)
    counter.last += 1
    counter.save(update_fields=["last"])
    return f"{experiment.key}-{counter.last:04d}"


def _write_content(request: Request, content: RequestContent) -> None:
    for name in FIELDS:
        setattr(request, name, getattr(content, name))
    request.arguments = dict(content.arguments)
    request.save(update_fields=[*FIELDS, "arguments"])
    _write_stages(request, content)


def _write_stages(request: Request, content: RequestContent) -> None:
    """Make the stages those of `content`; a stage keeps its row by position."""
    stages = [
        Stage(
            request=request,
            position=position,
            kind=stage.kind,
            arguments=dict(stage.arguments),
            **{name: getattr(stage, name) for name in STAGE_FIELDS},
        )
        for position, stage in enumerate(content.stages)
    ]
    request.stages.filter(position__gte=len(stages)).delete()
    Stage.objects.bulk_create(
        stages,
        update_conflicts=True,
        unique_fields=["request", "position"],
        update_fields=[*STAGE_FIELDS, "kind", "arguments"],
    )
    ids = dict(Service.objects.values_list("slug", "pk"))
    through = Stage.services.through
    through.objects.filter(stage__request=request).delete()
    through.objects.bulk_create(
        through(stage_id=row.pk, service_id=ids[slug])
        for row, stage in zip(stages, content.stages, strict=True)
        for slug in dict.fromkeys(stage.services)
    )
    getattr(request, "_prefetched_objects_cache", {}).clear()


def _ranks(step: Transition, request: Request, before: int | None) -> dict[str, int | None]:
    if RequestState.QUEUED not in {step.old, step.new}:
        return {}
    return {"rank_old": before, "rank_new": rank_of(request)}


def _words(request: Request) -> str:
    return f"“{request.get_state_display()}”"
