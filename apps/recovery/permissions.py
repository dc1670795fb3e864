"""Permissions to write recovery rules, and to sign that they act."""

from apps.accounts.enums import Role
from apps.accounts.models import Principal
from apps.accounts.permissions import scope_of


def may_write_rule(user: Principal, experiment_id: int | None) -> bool:
    """Return whether a user may write a rule of an experiment; None: of all experiments.

    That is the right of approvers, shifters and admins; a rule does not act by being written.
    """
    scope = scope_of(user)
    roles = (Role.APPROVER, Role.SHIFTER, Role.ADMIN)
    return any(scope.has(role, experiment_id) for role in roles)


def may_activate_rule(user: Principal, experiment_id: int | None) -> bool:
    """Return whether a user may sign that a rule acts, as approvers may."""
    return scope_of(user).has(Role.APPROVER, experiment_id)


def may_write_any_rule(user: Principal) -> bool:
    """Return whether a user may write a rule of at least one experiment."""
    scope = scope_of(user)
    return any(scope.has_anywhere(role) for role in (Role.APPROVER, Role.SHIFTER, Role.ADMIN))
