"""Making people, experiments and memberships, and choosing one's own settings."""

from datetime import datetime
from zoneinfo import available_timezones

from django.db import transaction

from apps.accounts.enums import Role
from apps.accounts.models import Experiment, Membership, User
from apps.core.errors import InvalidFields
from apps.core.services import publish


@transaction.atomic
def ensure_experiment(*, key: str, name: str, by: object, at: datetime) -> Experiment:
    """Return the experiment of this key, made if it was not there."""
    experiment, created = Experiment.objects.get_or_create(key=key, defaults={"name": name})
    if created:
        publish(kind="experiment.created", target=experiment, by=by, at=at)
    return experiment


@transaction.atomic
def ensure_user(
    *, username: str, password: str, by: object, at: datetime, first_name: str = "", last_name: str = ""
) -> User:
    """Return the user of this name, made with this password if it was not there."""
    user = User.objects.filter(username=username).first()
    if user is None:
        user = User.objects.create_user(username, password=password, first_name=first_name, last_name=last_name)
        publish(kind="user.created", target=user, by=by, at=at)
    return user


@transaction.atomic
def grant_role(*, user: User, role: Role, experiment: Experiment | None, by: object, at: datetime) -> Membership:
    """Give a role, for one experiment or for all; an admin of all may enter the back office."""
    membership, created = Membership.objects.get_or_create(user=user, role=role, experiment=experiment)
    if created:
        publish(
            kind="membership.granted",
            target=user,
            by=by,
            at=at,
            new=role,
            data={"experiment": str(experiment or "all")},
        )
        _follow_admin(user)
    return membership


@transaction.atomic
def revoke_role(*, membership: Membership, by: object, at: datetime) -> None:
    """Take a role away."""
    publish(
        kind="membership.revoked",
        target=membership.user,
        by=by,
        at=at,
        old=membership.role,
        data={"experiment": str(membership.experiment or "all")},
    )
    user = membership.user
    membership.delete()
    _follow_admin(user)


def _follow_admin(user: User) -> None:
    is_admin = user.memberships.filter(role=Role.ADMIN, experiment=None).exists()
    User.objects.filter(pk=user.pk).update(is_staff=is_admin, is_superuser=is_admin)
    user.is_staff = user.is_superuser = is_admin
    user.__dict__.pop("_scope", None)


@transaction.atomic
def choose_time_zone(*, user: User, time_zone: str) -> None:
    """Set the zone in which this person sees times; empty is the portal's own. Raises `InvalidFields`."""
    if time_zone and time_zone not in available_timezones():
        raise InvalidFields({"time_zone": [f"“{time_zone}” is no time zone of the IANA list, such as Europe/Berlin."]})
    User.objects.filter(pk=user.pk).update(time_zone=time_zone)
    user.time_zone = time_zone
