"""Building blocks of moves: locking, permission, transition, event."""

from datetime import datetime
from typing import Any

from apps.accounts.models import Principal, User
from apps.core.domain.events import events_of, publish
from apps.core.domain.workflow import move
from apps.core.errors import InvalidTransition, NotAllowed, StaleState
from apps.production.domain.actors import may
from apps.production.domain.approvals.requirements import slots_of
from apps.production.domain.checks import RuleFinding
from apps.production.domain.checks.facts import facts_for
from apps.production.domain.checks.report import run_checks
from apps.production.domain.content.model import RequestContent
from apps.production.domain.content.stages import content_of
from apps.production.domain.forecast import Forecast
from apps.production.domain.lifecycle.guards import refusal_of
from apps.production.domain.lifecycle.transitions import (
    MOVES,
    Transition,
    actor_of,
    transitions_from,
)
from apps.production.domain.lifecycle.withdrawal import withdraw_planned_jobs
from apps.production.domain.priority import rescoring
from apps.production.domain.priority.ranks import rank_of
from apps.production.domain.reasons import checked_reason
from apps.production.enums import (
    CLOSED,
    PORTAL,
    SCORED,
    SIGNED,
    Actor,
    AttentionKind,
    RequestState,
    Verb,
)
from apps.production.events import kind_of_move
from apps.production.models import Attention, QueueEntry, Request
from apps.production.permissions import is_requester

#: How many changed fields an event lists at most.
MAX_CHANGES = 100


def run_request_checks(
    request: Request, at: datetime, content: RequestContent | None = None
) -> list[RuleFinding]:
    """Run all checks on a request, with its current content or with `content`."""
    content = content_of(request) if content is None else content
    return run_checks(
        content, facts_for(content, experiment=request.experiment, request=request, at=at)
    )


def warnings_data(findings: list[RuleFinding]) -> dict[str, Any]:
    """Return the warnings at submission as event data."""
    warnings = []
    for finding in findings:
        if not finding.blocks:
            warnings.append(
                {
                    "rule": finding.rule,
                    "severity": finding.severity.value,
                    "path": finding.path,
                    "message": finding.message[:500],
                }
            )
    messages = {warning["message"] for warning in warnings}
    return {
        "checks": warnings[:MAX_CHANGES],
        "checks_count": len(warnings),
        "checks_messages": len(messages),
    }


def apply_move(
    request: Request,
    verb: Verb,
    *,
    by: Principal,
    at: datetime,
    reason: str = "",
    data: dict[str, Any] | None = None,
    **changes: Any,
) -> Request:
    """Make a move of the transition table, and publish its event with `data`.

    Raises `NotAllowed`, `InvalidTransition`, `InvalidFields` for a missing reason, `StaleState`.
    """
    check_actor(request, verb, by, at)
    step = find_transition(request, verb)
    reason = checked_reason(reason, needed=step.reason_needed)
    rank_before = rank_of(request)
    changes["held_from"] = ""
    if step.new == RequestState.ON_HOLD:
        changes["held_from"] = step.old
    if step.new in {RequestState.TESTING, RequestState.RUNNING}:
        changes |= _columns_of_start(request, step, at)
    if step.verb == Verb.RETURN_TO_QUEUE:
        changes["work_began_at"] = None
        data = {"withdrawn_jobs": withdraw_planned_jobs(request=request, at=at), **(data or {})}
    changes |= _closing_columns(step, by, at)
    # The stored forecast belongs to the old state; the event triggers a new one. The completed part
    # of the jobs stays valid.
    changes |= Forecast(
        part_done=request.part_done if step.new in SIGNED | CLOSED else None
    ).columns()
    move(request, to=step.new, transitions=MOVES, version=request.version + 1, **changes)
    # The move answers these needs for attention; a worker would notice that only later.
    ended = (AttentionKind.IDLE, AttentionKind.NEEDS_CHANGE)
    Attention.objects.filter(request=request, kind__in=ended).delete()
    if {step.old, step.new} & SCORED:
        rescoring.update_entry(request=request, at=at)
    if RequestState.QUEUED in {step.old, step.new}:
        data = {"rank_old": rank_before, "rank_new": rank_of(request), **(data or {})}
    publish(
        kind=kind_of_move(step.verb),
        target=request,
        by=by,
        at=at,
        old=step.old,
        new=step.new,
        reason=reason,
        data=data,
    )
    return request


def _columns_of_start(request: Request, step: Transition, at: datetime) -> dict[str, Any]:
    """Return when work began, and what it is expected to take: jobs that run change estimates."""
    columns: dict[str, Any] = {}
    if request.work_began_at is None:
        columns["work_began_at"] = at
    if step.old == RequestState.QUEUED:
        expected = QueueEntry.objects.filter(request=request).values_list("core_seconds", flat=True)
        columns["estimated_core_seconds"] = expected.first()
    return columns


def _closing_columns(step: Transition, by: Principal, at: datetime) -> dict[str, Any]:
    """Return the columns that a move sets if it closes or reopens a request."""
    if step.new in CLOSED and step.old not in CLOSED:
        return {"closed_at": at, "closed_by": by if isinstance(by, User) else None}
    if step.old in CLOSED and step.new not in CLOSED:
        return {"closed_at": None, "closed_by": None}
    return {}


def note_event(
    request: Request, kind: str, *, by: User, at: datetime, reason: str, data: dict[str, Any]
) -> Request:
    """Publish an event of a request that keeps its state, and increment its version."""
    request.version += 1
    request.save(update_fields=["version"])
    publish(kind=kind, target=request, by=by, at=at, reason=reason.strip(), data=data)
    return request


def find_transition(request: Request, verb: Verb) -> Transition:
    """Return the move that a verb makes now.

    Raises `InvalidTransition` with the reason if there is none.
    """
    steps = transitions_from(request.state, verb)
    if not steps:
        raise InvalidTransition(
            f"“{verb.label}” is not possible: {request} is {state_text(request)}."
        )
    refusals = []
    for step in steps:
        refusal = refusal_of(step, request)
        if not refusal:
            return step
        refusals.append(refusal)
    raise InvalidTransition(f"“{verb.label}” is not possible for {request}: {refusals[0]}")


def check_actor(request: Request, verb: Verb, by: Principal, at: datetime) -> None:
    if not may(by, actor_of(verb), request, at):
        raise NotAllowed(refusal_for(request, by, actor_of(verb)))


def refusal_for(request: Request, by: Principal, who: Actor) -> str:
    if who in {Actor.APPROVER, Actor.SIGNER, Actor.DECIDER} and is_requester(by, request):
        return f"You created, edited or submitted {request}. Another member of the OPG must decide."
    if who in {Actor.SIGNER, Actor.DECIDER}:
        signers = ", ".join(slot.group.name for slot in slots_of(request) if slot.group)
        more = "" if who is Actor.SIGNER else " and approvers"
        if signers:
            return f"Only members of {signers}{more} can do this."
    return {
        Actor.LIAISON: f"Only liaisons of {request.experiment} can do this.",
        Actor.LIAISON_OR_APPROVER: (
            f"Only liaisons of {request.experiment} and approvers can do this."
        ),
        Actor.OPERATOR: "Only approvers and shifters can do this.",
        Actor.OPERATOR_OR_PORTAL: "Only approvers and shifters can do this.",
        Actor.PORTAL: "Only the portal can do this.",
    }.get(who, "Only approvers can do this.")


def lock_request(request: Request, version: int | None) -> None:
    """Lock the row.

    Raises `StaleState` if it changed since it was read, or since the user saw `version`.
    """
    current: Request = Request.objects.select_for_update().get(pk=request.pk)
    if request.version != current.version or version not in {None, current.version}:
        last = (
            events_of(request)
            .exclude(actor=PORTAL)
            .exclude(kind__regex="^request.(comment|moved)")
            .last()
        )
        who = f" by {last.actor}" if last else ""
        raise StaleState(
            f"{request} was changed{who} in the meantime and is now {state_text(current)}. "
            "Your change was not saved."
        )


def state_text(request: Request) -> str:
    return f"“{request.get_state_display()}”"
