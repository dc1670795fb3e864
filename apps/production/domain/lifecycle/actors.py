"""Who may make which move of a request."""

from datetime import datetime
from typing import Any

from apps.production.domain.approvals.slots import has_to_sign, may_sign, slots_of
from apps.production.domain.lifecycle.guards import refusal_of
from apps.production.domain.lifecycle.transitions import TRANSITIONS, Transition
from apps.production.enums import WRITTEN, Verb, Who
from apps.production.models import Request
from apps.production.permissions import PREDICATES


def may(user: Any, who: Who, request: Request, at: datetime | None = None) -> bool:
    """Tell whether this person is, for this request, the one that a move needs.

    What was handed over to the person at the moment `at` counts for signing and deciding; without it, own rights alone.
    """
    if who is Who.SIGNER:
        return may_sign(request, user, at)
    if who is Who.DECIDER:
        return PREDICATES[Who.APPROVER](user, request) or may_sign(request, user, at)
    return PREDICATES[who](user, request)


def moves_for(user: Any, request: Request, at: datetime | None = None, *, slots: Any = None) -> list[Transition]:
    """Return the moves that this person may make now, but for those that come along with writing.

    `slots` are the signatures that it needs, as `approvals.slots_of` tells for this person, where they are known.
    """
    steps = [t for t in TRANSITIONS if t.old == request.state and t.verb not in WRITTEN]
    asked = {t.who for t in steps}
    allowed = {who: may(user, who, request, at) for who in asked - {Who.SIGNER, Who.DECIDER}}
    if asked & {Who.SIGNER, Who.DECIDER}:
        slots = slots_of(request, user, at) if slots is None else slots
        signs, misses = any(slot.mine for slot in slots), has_to_sign(slots)
        allowed |= {Who.SIGNER: signs, Who.DECIDER: signs or PREDICATES[Who.APPROVER](user, request)}
        steps = [t for t in steps if misses or t.verb is not Verb.APPROVE]
    return [t for t in steps if allowed[t.who] and not refusal_of(t, request, offered=True)]
