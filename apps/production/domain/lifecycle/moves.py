"""Moves of requests and their priority. Each function publishes an event."""

from collections.abc import Callable
from datetime import datetime
from functools import partial
from typing import Any

from django.db import transaction

from apps.accounts.models import Principal, User
from apps.core.domain.background import enqueue
from apps.core.domain.events import publish
from apps.core.errors import InvalidFields, InvalidTransition, NotAllowed
from apps.production.domain.actors import may
from apps.production.domain.approvals import signatures
from apps.production.domain.approvals.requirements import slots_of, slots_to_sign
from apps.production.domain.checks.report import messages_of
from apps.production.domain.content.revisions import keep_revision
from apps.production.domain.content.stages import content_of
from apps.production.domain.lifecycle.guards import KnownAnswers, may_offer
from apps.production.domain.lifecycle.reopening import take_again
from apps.production.domain.lifecycle.steps import (
    apply_move,
    check_actor,
    find_transition,
    lock_request,
    note_event,
    refusal_for,
    run_request_checks,
    state_text,
    warnings_data,
)
from apps.production.domain.lifecycle.transitions import TRANSITIONS, Transition, actor_of
from apps.production.domain.priority import manual_moves, rescoring
from apps.production.domain.priority.ranks import rank_of
from apps.production.domain.reasons import MAX_REASON, checked_reason, reason_problems
from apps.production.enums import (
    PORTAL,
    PRIORITISED,
    VERBS_WITHOUT_BUTTON,
    Actor,
    RequestedPriority,
    RequestState,
    Verb,
)
from apps.production.models import MAX_PRIORITY, MIN_PRIORITY, Request


@transaction.atomic
def submit_request(
    *, request: Request, by: User, at: datetime, reason: str = "", version: int | None = None
) -> Request:
    """Submit a complete request for checks.

    Raises the errors of `apply_move`, and `InvalidFields`.
    """
    check_actor(request, Verb.SUBMIT, by, at)
    lock_request(request, version)
    find_transition(request, Verb.SUBMIT)
    findings = run_request_checks(request, at)
    problems = messages_of(finding for finding in findings if finding.blocks)
    if problems:
        raise InvalidFields(problems)
    signatures.withdraw_of_requester(
        request=request, by=by, at=at, reason=f"{by} submitted the request."
    )
    stamps = {"submitted_at": at, "submitted_by": by}
    apply_move(
        request, Verb.SUBMIT, by=by, at=at, reason=reason, data=warnings_data(findings), **stamps
    )
    keep_revision(request=request, by=by, at=at, submitted=True)
    enqueue("production.check_request", request_id=request.pk)
    return request


@transaction.atomic
def check_request(*, request: Request, at: datetime) -> Request:
    """Check a submitted request again, because it may have waited.

    Pass it, or return it with its problems. Raises `InvalidTransition` if it is not submitted.
    """
    lock_request(request, None)
    apply_move(request, Verb.CHECK, by=PORTAL, at=at)
    findings = run_request_checks(request, at)
    problems = messages_of(finding for finding in findings if finding.blocks)
    if not problems:
        return apply_move(request, Verb.PASS, by=PORTAL, at=at, data=warnings_data(findings))

    lines = []
    for path, messages in problems.items():
        lines += [f"{path}: {message}" for message in messages]
    return apply_move(request, Verb.RETURN, by=PORTAL, at=at, reason="\n".join(lines)[:MAX_REASON])


@transaction.atomic
def approve_request(
    *,
    request: Request,
    by: User,
    at: datetime,
    reason: str = "",
    version: int | None = None,
    group: str = "",
    priority_class: str | None = None,
    priority: int | None = None,
) -> Request:
    """Sign a request for all groups of this user, or for the named one.

    The last signature adds it to the queue. Class and number are set in the same step; None keeps
    the current value. The requested class needs no reason. Raises the errors of `apply_move` and
    `set_priority`, and `InvalidTransition` if the group has already signed.
    """
    check_actor(request, Verb.APPROVE, by, at)
    lock_request(request, version)
    find_transition(request, Verb.APPROVE)
    number = request.priority if priority is None else priority
    level = (request.priority_class if priority_class is None else priority_class, number)
    if level != (request.priority_class, request.priority):
        as_requested = level == (request.requested_priority, request.priority)
        set_priority(
            request=request,
            by=by,
            at=at,
            reason=reason,
            reason_needed=not as_requested,
            priority_class=priority_class,
            priority=priority,
        )
    reason = checked_reason(reason, needed=False)
    made, complete = signatures.sign(
        request=request, content=content_of(request), by=by, at=at, group=group
    )
    data = signatures.signature_data(made)
    if not complete:
        return note_event(request, "request.sign", by=by, at=at, reason=reason, data=data)
    apply_move(
        request,
        Verb.APPROVE,
        by=by,
        at=at,
        reason=reason,
        data=data,
        approved_at=at,
        approved_by=by,
    )
    return apply_move(request, Verb.QUEUE, by=PORTAL, at=at)


@transaction.atomic
def withdraw_signature(
    *,
    request: Request,
    signature: int,
    by: User,
    at: datetime,
    reason: str,
    version: int | None = None,
) -> Request:
    """Withdraw a signature while others are still missing.

    Raises `NotAllowed`, `InvalidTransition`, `InvalidFields` for a missing reason, `StaleState`.
    """
    lock_request(request, version)
    if request.state != RequestState.AWAITING_APPROVAL:
        raise InvalidTransition(
            f"{request} is {state_text(request)}. Signatures can no longer be withdrawn."
        )
    reason = checked_reason(reason)
    taken = signatures.withdraw_own(
        request=request, signature=signature, by=by, at=at, reason=reason
    )
    return note_event(
        request,
        "request.withdraw_signature",
        by=by,
        at=at,
        reason=reason,
        data=signatures.signature_data([taken]),
    )


@transaction.atomic
def reopen_request(
    *, request: Request, by: User, at: datetime, reason: str = "", version: int | None = None
) -> Request:
    """Undo a rejection: the checks run again, and the required signatures start over.

    Raises the errors of `apply_move`, and `InvalidTransition` if others use now what it gave back.
    """
    check_actor(request, Verb.REOPEN, by, at)
    # Plugins may lock the request that it was made from, which is always locked before it.
    take_again(request=request, by=by, at=at)
    lock_request(request, version)
    find_transition(request, Verb.REOPEN)
    withdrawn = signatures.withdraw_all(
        request=request, by=by, at=at, reason="The request was reopened."
    )
    data = {"withdrawn": withdrawn}
    apply_move(request, Verb.REOPEN, by=by, at=at, reason=reason, data=data)
    enqueue("production.check_request", request_id=request.pk)
    return request


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
    """Replace a request by another one of its experiment. Raises the errors of `apply_move`."""
    check_actor(request, Verb.SUPERSEDE, by, at)
    if (
        successor is None
        or successor.experiment_id != request.experiment_id
        or successor.pk == request.pk
    ):
        raise InvalidFields({"successor": ["Choose another request of this experiment."]})
    lock_request(request, version)
    request.superseded_by = successor
    return apply_move(
        request, Verb.SUPERSEDE, by=by, at=at, reason=reason, data=data, superseded_by=successor
    )


@transaction.atomic
def make_move(
    *,
    verb: Verb,
    request: Request,
    by: Principal,
    at: datetime,
    reason: str = "",
    version: int | None = None,
    data: dict[str, Any] | None = None,
) -> Request:
    """Make a move that changes only the state; `data` is added to its event.

    Raises the errors of `apply_move`.
    """
    lock_request(request, version)
    return apply_move(request, verb, by=by, at=at, reason=reason, data=data)


@transaction.atomic
def set_priority(
    *,
    request: Request,
    by: User,
    at: datetime,
    reason: str,
    reason_needed: bool = True,
    priority: int | None = None,
    priority_class: str | None = None,
    version: int | None = None,
) -> Request:
    """Set priority class and number; None keeps the current value.

    This discards the manual queue position. The event has the priority and the rank before and
    after. Raises `NotAllowed`, `InvalidTransition`, `InvalidFields`, `StaleState`.
    """
    if not may(by, Actor.APPROVER, request):
        raise NotAllowed(refusal_for(request, by, Actor.APPROVER))
    lock_request(request, version)
    if request.state not in PRIORITISED:
        raise InvalidTransition(
            f"{request} is {state_text(request)}. Its priority cannot be changed in this state."
        )
    problems = reason_problems(reason, needed=reason_needed) | _level_problems(
        priority_class, priority
    )
    if problems:
        raise InvalidFields(problems)
    old = request.level
    ranks = {"rank_old": rank_of(request)}
    if priority is not None:
        request.priority = priority
    if priority_class is not None:
        request.priority_class = priority_class
    request.version += 1
    request.save(update_fields=["priority", "priority_class", "version"])
    rescoring.reset_position(request=request)
    rescoring.update_entry(request=request, at=at)
    manual_moves.note_change(
        rescoring.lock_queue(), by=by, at=at, what=f"{request} is now {request.level}"
    )
    ranks["rank_new"] = rank_of(request)
    kind = "request.priority_set"
    new = request.level
    publish(
        kind=kind, target=request, by=by, at=at, old=old, new=new, reason=reason.strip(), data=ranks
    )
    return request


def _level_problems(priority_class: str | None, number: int | None) -> dict[str, list[str]]:
    problems = {}
    if number is None and priority_class is None:
        problems["priority"] = ["Enter a class, a number, or both."]
    if number is not None and not MIN_PRIORITY <= number <= MAX_PRIORITY:
        problems["priority"] = [f"Enter a whole number from {MIN_PRIORITY} to {MAX_PRIORITY}."]
    if priority_class is not None and priority_class not in RequestedPriority.values:
        problems["priority_class"] = [f"Choose one of: {', '.join(RequestedPriority.values)}."]
    return problems


#: The domain function of each verb with a button. Moves of the portal and moves that follow from
#: saving a change are not included.
MOVE_FUNCTIONS: dict[Verb, Callable[..., Request]] = {
    verb: partial(make_move, verb=verb)
    for verb in Verb
    if actor_of(verb) is not Actor.PORTAL and verb not in VERBS_WITHOUT_BUTTON
} | {
    Verb.SUBMIT: submit_request,
    Verb.APPROVE: approve_request,
    Verb.REOPEN: reopen_request,
    Verb.SUPERSEDE: supersede_request,
}


def moves_for(
    user: User,
    request: Request,
    at: datetime | None = None,
    *,
    slots: Any = None,
    answers: KnownAnswers | None = None,
) -> list[Transition]:
    """Return the moves that this user can make now with a button.

    Pass `slots`, the result of `slots_of` for this user, and `answers` of checks to save their
    queries.
    """
    steps = []
    for step in TRANSITIONS:
        if step.old == request.state and step.verb not in VERBS_WITHOUT_BUTTON:
            steps.append(step)
    actors = {step.actor for step in steps}
    if actors & {Actor.SIGNER, Actor.DECIDER}:
        slots = slots_of(request, user, at) if slots is None else slots
        if not any(slot.mine for slot in slots_to_sign(slots)):
            steps = [step for step in steps if step.verb is not Verb.APPROVE]

    allowed = {actor: may(user, actor, request, at, slots=slots) for actor in actors}
    moves = []
    for step in steps:
        if allowed[step.actor] and may_offer(step, request, answers=answers):
            moves.append(step)
    return moves
