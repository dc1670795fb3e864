"""People and experiments for tests."""

from datetime import UTC, datetime

from django.contrib.auth.hashers import make_password

from apps.accounts.enums import Role
from apps.accounts.models import Experiment, Membership, User

LONG_AGO = datetime(2026, 1, 1, tzinfo=UTC)
PASSWORD = "correct horse battery staple"


def experiment(key: str, name: str = "") -> Experiment:
    """The experiment of this key, made as a row if missing, of which no event tells."""
    return Experiment.objects.filter(key=key).first() or Experiment.objects.create(
        key=key, name=name or key
    )


def person(username: str, *roles: tuple[str, Experiment | None]) -> User:
    """A new user with these roles, pairs of role and experiment, None for all; as rows,
    of which no event tells.
    """
    is_admin = ("admin", None) in roles
    user = User.objects.create(
        username=username,
        password=make_password(PASSWORD),
        is_staff=is_admin,
        is_superuser=is_admin,
    )
    Membership.objects.bulk_create(
        Membership(user=user, role=Role(role), experiment=experiment) for role, experiment in roles
    )
    return user


def nova() -> Experiment:
    return experiment("NOVA", "NOvA")


def dune() -> Experiment:
    return experiment("DUNE", "DUNE")


def liaison_of(of: Experiment) -> User:
    return person(f"{of.key.lower()}-liaison", ("liaison", of))


def approver() -> User:
    return person("opg-one", ("approver", None))


def shifter() -> User:
    return person("shift-one", ("shifter", None))
