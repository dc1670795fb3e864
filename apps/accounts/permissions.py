"""Who may do what: one place that every page, route and service asks."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from apps.accounts.enums import OPG_ROLES, Role

if TYPE_CHECKING:
    from django.contrib.auth.models import AnonymousUser

    from apps.accounts.models import User

#: Whose rights are asked for; a stranger has none, nor has a part of the portal, which is named by a text.
Anyone: TypeAlias = "User | AnonymousUser | str | None"


@dataclass(frozen=True)
class Scope:
    """All roles of one person: pairs of role and experiment id, None for all experiments."""

    roles: frozenset[tuple[str, int | None]]

    @property
    def sees_all(self) -> bool:
        """Tell whether this person belongs to the OPG, whose work spans all experiments."""
        return any(role in OPG_ROLES and experiment is None for role, experiment in self.roles)

    @property
    def experiments(self) -> frozenset[int]:
        """Return the ids of the experiments with a role of any kind."""
        return frozenset(experiment for _, experiment in self.roles if experiment is not None)

    def has(self, role: Role, experiment_id: int | None = None) -> bool:
        """Tell whether the role is held for this experiment, or for all."""
        return (role, None) in self.roles or (experiment_id is not None and (role, experiment_id) in self.roles)

    def has_anywhere(self, role: Role) -> bool:
        """Tell whether the role is held for at least one experiment."""
        return any(held == role for held, _ in self.roles)

    def sees(self, experiment_id: int | None) -> bool:
        """Tell whether what belongs to this experiment (None: to none) may be seen."""
        return self.sees_all or experiment_id in self.experiments


NOBODY = Scope(frozenset())


def scope_of(user: Anyone) -> Scope:
    """Return the person's roles, read once per user object; a stranger or inactive user has none."""
    if user is None or isinstance(user, str) or not user.is_authenticated or not user.is_active:
        return NOBODY
    if not hasattr(user, "_scope"):
        user._scope = Scope(frozenset(user.memberships.values_list("role", "experiment_id")))
    return user._scope


def logins_of(user: Anyone) -> frozenset[tuple[str, str]]:
    """Return the person's own logins: pairs of login and the cluster's name, which is empty for every cluster."""
    if user is None or isinstance(user, str) or not user.is_authenticated or not user.is_active:
        return frozenset()
    if not hasattr(user, "_logins"):
        user._logins = frozenset(user.cluster_logins.values_list("login", "cluster"))
    return user._logins


def is_opg(user: Anyone) -> bool:
    """Tell whether the person is of the Offline Production Group."""
    return scope_of(user).sees_all


def is_approver(user: Anyone, experiment_id: int | None = None) -> bool:
    return scope_of(user).has(Role.APPROVER, experiment_id)


def is_liaison(user: Anyone, experiment_id: int | None = None) -> bool:
    return scope_of(user).has(Role.LIAISON, experiment_id)


def is_shifter(user: Anyone) -> bool:
    """Tell whether the person may run operations: services, announcements, retries. Approvers and admins may too."""
    return is_opg(user)


def is_admin(user: Anyone) -> bool:
    return scope_of(user).has(Role.ADMIN)
