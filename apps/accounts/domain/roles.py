"""Roles of users in experiments."""

from datetime import datetime

from django.db import transaction

from apps.accounts.enums import Role
from apps.accounts.models import Experiment, Membership, Principal, User
from apps.core.domain.events import publish


@transaction.atomic
def grant_role(
    *, user: User, role: Role, experiment: Experiment | None, by: Principal, at: datetime
) -> Membership:
    """Grant a role for one experiment or for all.

    An admin of all experiments gets access to `/admin/`.
    """
    membership, created = Membership.objects.get_or_create(
        user=user, role=role, experiment=experiment
    )
    if created:
        where = {"experiment": str(experiment or "all")}
        publish(kind="membership.granted", target=user, by=by, at=at, new=role, data=where)
        _update_staff(membership)
    return membership


@transaction.atomic
def revoke_role(*, membership: Membership, by: Principal, at: datetime) -> None:
    where = {"experiment": str(membership.experiment or "all")}
    publish(
        kind="membership.revoked",
        target=membership.user,
        by=by,
        at=at,
        old=membership.role,
        data=where,
    )
    membership.delete()
    _update_staff(membership)


def _update_staff(membership: Membership) -> None:
    """Update access to `/admin/` if the role is admin of all experiments."""
    user = membership.user
    user.__dict__.pop("_scope", None)
    if membership.role != Role.ADMIN or membership.experiment_id is not None:
        return
    is_admin = user.memberships.filter(role=Role.ADMIN, experiment=None).exists()
    User.objects.filter(pk=user.pk).update(is_staff=is_admin, is_superuser=is_admin)
    user.is_staff = user.is_superuser = is_admin
