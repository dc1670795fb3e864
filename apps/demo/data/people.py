"""The demo's experiments and people from `people.yaml`."""

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import yaml
from django.contrib.auth.hashers import make_password
from pydantic import TypeAdapter

from apps.accounts.domain.experiments import ensure_experiment
from apps.accounts.domain.roles import grant_role
from apps.accounts.domain.users import ensure_user
from apps.accounts.enums import Role
from apps.accounts.models import Experiment, User
from apps.production.models import ApprovalGroup, ApprovalRule

#: Public: `manage.py demo` runs only if the setting DEMO allows it.
PASSWORD = "demo"  # noqa: S105


@dataclass(frozen=True)
class Person:
    """A user with one role, for one experiment or for all."""

    username: str
    first_name: str
    last_name: str
    role: Role
    experiment: str = ""

    @property
    def position(self) -> str:
        """The person's role and experiment: `liaison of NOvA`."""
        if not self.experiment:
            return self.role.label
        return f"{self.role.label.lower()} of {EXPERIMENTS[self.experiment]}"


_DATA = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text())
_PEOPLE = TypeAdapter(tuple[Person, ...])
EXPERIMENTS: dict[str, str] = _DATA["experiments"]
LOGINS = _PEOPLE.validate_python(_DATA["logins"])


def load_people(at: datetime) -> tuple[dict[str, Experiment], dict[str, User]]:
    """Create missing experiments and people; return them by key and by username."""
    experiments = {}
    for key, name in EXPERIMENTS.items():
        experiments[key] = ensure_experiment(key=key, name=name, by="demo", at=at)
    # Hash it once, because hashing is slow by design.
    password_hash = make_password(PASSWORD)
    users = {}
    for person in LOGINS + _PEOPLE.validate_python(_DATA["others"]):
        user = ensure_user(
            username=person.username,
            password_hash=password_hash,
            by="demo",
            at=at,
            first_name=person.first_name,
            last_name=person.last_name,
            is_demo=True,
        )
        grant_role(
            user=user,
            role=person.role,
            experiment=experiments.get(person.experiment),
            by="demo",
            at=at,
        )
        users[person.username] = user
    for group in _DATA["signatures"]:
        _require_signature(
            experiments[group["experiment"]],
            group["name"],
            [users[name] for name in group["members"]],
        )
    return experiments, users


def _require_signature(experiment: Experiment, name: str, members: list[User]) -> None:
    """Require an experiment's requests to be signed by an approver and by a group of members."""
    approvers, _ = ApprovalGroup.objects.get_or_create(
        name="Offline Production Group", role=Role.APPROVER
    )
    group, is_new = ApprovalGroup.objects.get_or_create(name=name, experiment=experiment)
    if is_new:
        group.members.set(members)
        ApprovalRule.objects.create(experiment=experiment).groups.set([approvers, group])
