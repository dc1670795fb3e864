"""Whether a user is the actor that a move of a request requires."""

from collections.abc import Iterable
from datetime import datetime

from apps.accounts.models import Principal, User
from apps.production.domain.approvals.requirements import SignatureSlot, may_sign
from apps.production.enums import Actor
from apps.production.models import Request
from apps.production.permissions import PREDICATES


def may(
    user: Principal,
    actor: Actor,
    request: Request,
    at: datetime | None = None,
    *,
    slots: Iterable[SignatureSlot] | None = None,
) -> bool:
    """Whether this user is the actor of a move of this request.

    Delegations in force at `at` count for signing and deciding. Without `at`, only the user's own
    rights count. Pass `slots`, the result of `slots_of` for this user, to save its queries.
    """
    if actor is Actor.SIGNER and slots is not None:
        return any(slot.mine for slot in slots)
    if actor is Actor.SIGNER:
        return isinstance(user, User) and may_sign(request, user, at)
    if actor is Actor.DECIDER:
        is_approver = PREDICATES[Actor.APPROVER](user, request)
        return is_approver or may(user, Actor.SIGNER, request, at, slots=slots)
    return PREDICATES[actor](user, request)
