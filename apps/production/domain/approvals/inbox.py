"""The inbox: requests that wait for a user."""

from collections.abc import Sequence
from datetime import datetime

from django.db.models import F, Q

from apps.accounts.models import User
from apps.accounts.permissions import scope_of
from apps.production.domain.approvals.turns import RESPONSIBLE, signable, waiting_in
from apps.production.enums import RequestState
from apps.production.models import Request, RequestQuerySet


def waiting_for(user: User, at: datetime | None = None) -> RequestQuerySet[Request]:
    """Return the requests that wait for this user: to sign, change, complete, release or close.

    With `at`, delegations in force at that time count.
    """
    scope = scope_of(user)
    if not scope.roles:
        return Request.objects.none()
    found = Q(pk__in=signable(user, at))
    for state, roles in RESPONSIBLE.items():
        if any(scope.has_anywhere(role) for role in roles):
            found |= waiting_in(state) & _of_roles(user, roles)
    others = Q(state=RequestState.DRAFT) & ~Q(created_by=user)
    return Request.objects.filter(found).exclude(others).order_by(F("deadline").asc(nulls_last=True), "pk")


def _of_roles(user: User, roles: Sequence[str]) -> Q:
    held = {experiment for role, experiment in scope_of(user).roles if role in roles}
    return Q() if None in held else Q(experiment__in=held)
