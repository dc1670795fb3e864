"""Whether a person is the one whom an action on a request needs."""

from datetime import datetime

from apps.accounts.models import Principal, User
from apps.production.domain.approvals.requirements import may_sign
from apps.production.enums import Actor
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
