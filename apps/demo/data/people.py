"""Experiments and people of the demo. All of them are invented."""

from dataclasses import dataclass
from datetime import datetime

from django.contrib.auth.hashers import make_password

from apps.accounts.domain import ensure_experiment, ensure_user, grant_role
from apps.accounts.enums import Role
from apps.accounts.models import Experiment, User

#: Known to everybody: `manage.py demo` runs only where the setting DEMO allows it.
PASSWORD = "demo"  # noqa: S105
EXPERIMENTS = {"NOVA": "NOvA", "DUNE": "DUNE", "MU2E": "Mu2e"}


@dataclass(frozen=True)
class Person:
    """Somebody with one role; without an experiment, for all of them."""

    username: str
    first_name: str
    last_name: str
    role: Role
    experiment: str = ""

    @property
    def words(self) -> str:
        """Say what the person is."""
        return f"{self.role.label.lower()} of {EXPERIMENTS[self.experiment]}" if self.experiment else self.role.label

    def __str__(self) -> str:
        return self.username


LOGINS = (
    Person("liaison", "Lena", "Hartwig", Role.LIAISON, "NOVA"),
    Person("approver", "Amara", "Okafor", Role.APPROVER),
    Person("shifter", "Samir", "Benali", Role.SHIFTER),
    Person("admin", "Ada", "Novak", Role.ADMIN),
)
OTHERS = (
    Person("dune-liaison", "Tuva", "Lindqvist", Role.LIAISON, "DUNE"),
    Person("mu2e-liaison", "Rui", "Ferreira", Role.LIAISON, "MU2E"),
    Person("nova-second", "Marta", "Kowalska", Role.LIAISON, "NOVA"),
    Person("approver-two", "Pavel", "Dvorak", Role.APPROVER),
    Person("shifter-two", "Inez", "Marchetti", Role.SHIFTER),
)


def load_people(at: datetime) -> tuple[dict[str, Experiment], dict[str, User]]:
    """Make experiments and people where they are missing; return them by key and by name."""
    experiments = {key: ensure_experiment(key=key, name=name, by="demo", at=at) for key, name in EXPERIMENTS.items()}
    password_hash = make_password(PASSWORD)  # once: it is slow on purpose
    users = {}
    for person in LOGINS + OTHERS:
        user = ensure_user(
            username=person.username,
            password_hash=password_hash,
            by="demo",
            at=at,
            first_name=person.first_name,
            last_name=person.last_name,
        )
        experiment = experiments[person.experiment] if person.experiment else None
        grant_role(user=user, role=person.role, experiment=experiment, by="demo", at=at)
        users[person.username] = user
    return experiments, users
