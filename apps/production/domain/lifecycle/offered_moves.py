"""The moves that a user can make on a request now."""

from datetime import datetime
from typing import Any

from apps.accounts.models import User
from apps.production.domain.actors import may
from apps.production.domain.approvals.requirements import has_to_sign, slots_of
from apps.production.domain.lifecycle.guards import refusal_of
from apps.production.domain.lifecycle.transitions import TRANSITIONS, Transition
from apps.production.enums import VERBS_WITHOUT_BUTTON, Actor, Verb
from apps.production.models import Request
from apps.production.permissions import PREDICATES


def moves_for(user: User, request: Request, at: datetime | None = None, *, slots: Any = None) -> list[Transition]:
    """Return the moves that this user can make now with a button.

    Pass `slots`, the result of `slots_of` for this user, to save its queries.
    """
    steps = [t for t in TRANSITIONS if t.old == request.state and t.verb not in VERBS_WITHOUT_BUTTON]
    asked = {t.actor for t in steps}
    allowed = {actor: may(user, actor, request, at) for actor in asked - {Actor.SIGNER, Actor.DECIDER}}
    if asked & {Actor.SIGNER, Actor.DECIDER}:
        slots = slots_of(request, user, at) if slots is None else slots
        signs, misses = any(slot.mine for slot in slots), has_to_sign(slots)
        allowed |= {Actor.SIGNER: signs, Actor.DECIDER: signs or PREDICATES[Actor.APPROVER](user, request)}
        steps = [t for t in steps if misses or t.verb is not Verb.APPROVE]
    return [t for t in steps if allowed[t.actor] and not refusal_of(t, request, offered=True)]
