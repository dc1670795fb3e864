"""Roles of users, the basis of every permission check."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from apps.accounts.enums import OPG_ROLES, Role

if TYPE_CHECKING:
    from django.contrib.auth.models import AnonymousUser

    from apps.accounts.models import User

#: Anonymous users and components of the portal, which are named by text, have no roles.
Anyone: TypeAlias = "User | AnonymousUser | str | None"


@dataclass(frozen=True)
class Scope:
    """All roles of a user: pairs of role and key of the experiment, None for all experiments."""

    roles: frozenset[tuple[str, int | None]]

    @property
    def sees_all(self) -> bool:
        """Return whether the user belongs to the OPG, which works for all experiments."""
        return any(role in OPG_ROLES and pk is None for role, pk in self.roles)

    @property
    def experiment_keys(self) -> frozenset[int]:
        """The primary keys of the experiments in which the user has a role."""
        return frozenset(pk for _, pk in self.roles if pk is not None)

    def has(self, role: Role, experiment_id: int | None = None) -> bool:
        """Return whether the user has the role for this experiment or for all."""
        return (role, None) in self.roles or (
            experiment_id is not None and (role, experiment_id) in self.roles
        )

    def has_anywhere(self, role: Role) -> bool:
        """Return whether the user has the role for at least one experiment."""
        return any(own_role == role for own_role, _ in self.roles)

    def sees(self, experiment_id: int | None) -> bool:
        """Return whether the user can see objects of this experiment (None: of no experiment)."""
        return self.sees_all or experiment_id in self.experiment_keys


NOBODY = Scope(frozenset())


def scope_of(user: Anyone) -> Scope:
    """Return the user's roles, cached on the user object.

    Anonymous and inactive users have none.
    """
    if user is None or isinstance(user, str) or not user.is_authenticated or not user.is_active:
        return NOBODY
    if not hasattr(user, "_scope"):
        memberships = user.memberships.all()
        user._scope = Scope(
            frozenset((membership.role, membership.experiment_id) for membership in memberships)
        )
    return user._scope


def logins_of(user: Anyone) -> frozenset[tuple[str, str]]:
    """Return the user's cluster logins as pairs of login and cluster name.

    An empty name stands for all clusters.
    """
    if user is None or isinstance(user, str) or not user.is_authenticated or not user.is_active:
        return frozenset()
    if not hasattr(user, "_logins"):
        user._logins = frozenset(user.cluster_logins.values_list("login", "cluster"))
    return user._logins


def has_login(user: Anyone, login: str, cluster_name: str) -> bool:
    """Return whether a login on a cluster is the user's own."""
    return not logins_of(user).isdisjoint({(login, cluster_name), (login, "")})


def is_opg(user: Anyone) -> bool:
    """Return whether the user belongs to the Offline Production Group."""
    return scope_of(user).sees_all


def may_see_health(user: Anyone) -> bool:
    """Return whether the user sees the health of the portal: the OPG, and superusers."""
    if user is None or isinstance(user, str):
        return False
    return is_opg(user) or (user.is_active and user.is_superuser)


def is_approver(user: Anyone, experiment_id: int | None = None) -> bool:
    return scope_of(user).has(Role.APPROVER, experiment_id)


def is_liaison(user: Anyone, experiment_id: int | None = None) -> bool:
    return scope_of(user).has(Role.LIAISON, experiment_id)


def is_operator(user: Anyone, experiment_id: int | None = None) -> bool:
    """Return whether the user operates production, as an approver or shifter."""
    scope = scope_of(user)
    return scope.has(Role.APPROVER, experiment_id) or scope.has(Role.SHIFTER, experiment_id)


def operates_any(user: Anyone) -> bool:
    """Return whether the user operates the production of at least one experiment."""
    scope = scope_of(user)
    return scope.has_anywhere(Role.APPROVER) or scope.has_anywhere(Role.SHIFTER)
