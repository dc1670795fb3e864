"""Who may make which move of a request."""

from datetime import datetime
from typing import Any

from apps.accounts.models import Principal, User
from apps.production.domain.approvals.slots import has_to_sign, may_sign, slots_of
from apps.production.domain.lifecycle.guards import refusal_of
from apps.production.domain.lifecycle.transitions import TRANSITIONS, Transition
from apps.production.enums import WRITTEN, Actor, Verb
from apps.production.models import Request
from apps.production.permissions import PREDICATES


def may(user: Principal, actor: Actor, request: Request, at: datetime | None = None) -> bool:
    """Tell whether this person is, for this request, the one that a move needs.

    What was handed over to the person at the moment `at` counts for signing and deciding; without it, own rights alone.
    """
    if actor is Actor.SIGNER:
        return isinstance(user, User) and may_sign(request, user, at)
    if actor is Actor.DECIDER:
        return PREDICATES[Actor.APPROVER](user, request) or may(user, Actor.SIGNER, request, at)
    return PREDICATES[actor](user, request)


def moves_for(user: User, request: Request, at: datetime | None = None, *, slots: Any = None) -> list[Transition]:
    """Return the moves that this person may make now, but for those that come along with writing.

    `slots` are the signatures that it needs, as `approvals.slots_of` tells for this person, where they are known.
    """
    steps = [t for t in TRANSITIONS if t.old == request.state and t.verb not in WRITTEN]
    asked = {t.actor for t in steps}
    allowed = {actor: may(user, actor, request, at) for actor in asked - {Actor.SIGNER, Actor.DECIDER}}
    if asked & {Actor.SIGNER, Actor.DECIDER}:
        slots = slots_of(request, user, at) if slots is None else slots
        signs, misses = any(slot.mine for slot in slots), has_to_sign(slots)
        allowed |= {Actor.SIGNER: signs, Actor.DECIDER: signs or PREDICATES[Actor.APPROVER](user, request)}
        steps = [t for t in steps if misses or t.verb is not Verb.APPROVE]
    return [t for t in steps if allowed[t.actor] and not refusal_of(t, request, offered=True)]
