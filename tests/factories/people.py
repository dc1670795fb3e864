"""People and experiments for tests, made by the services that make real ones."""

from datetime import UTC, datetime

from django.contrib.auth.hashers import make_password

from apps.accounts import domain
from apps.accounts.enums import Role
from apps.accounts.models import Experiment, User

LONG_AGO = datetime(2026, 1, 1, tzinfo=UTC)
PASSWORD = "correct horse battery staple"


def experiment(key: str, name: str = "") -> Experiment:
    return domain.ensure_experiment(key=key, name=name or key, by="test", at=LONG_AGO)


def person(username: str, *roles: tuple[str, Experiment | None]) -> User:
    """A user with these roles: pairs of role and experiment, None for all."""
    user = domain.ensure_user(username=username, password_hash=make_password(PASSWORD), by="test", at=LONG_AGO)
    for role, of in roles:
        domain.grant_role(user=user, role=Role(role), experiment=of, by="test", at=LONG_AGO)
    return user
