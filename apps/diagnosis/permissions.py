"""Permissions to correct verdicts, re-analyse logs, and change the catalogue of known errors."""

from apps.accounts.enums import Role
from apps.accounts.models import Principal
from apps.accounts.permissions import is_liaison, is_opg, scope_of


def may_correct_verdict(user: Principal, experiment_id: int | None) -> bool:
    """Return whether the user belongs to the OPG or is a liaison of the job's experiment."""
    return is_opg(user) or (experiment_id is not None and is_liaison(user, experiment_id))


def may_edit_catalogue(user: Principal) -> bool:
    """Return whether the user may change known errors and decide on proposals.

    This is the right of approvers and admins of the OPG.
    """
    return any(scope_of(user).has(role) for role in (Role.APPROVER, Role.ADMIN))


def may_propose_known_errors(user: Principal) -> bool:
    """Return whether the user may propose changes, as the OPG and liaisons may."""
    return is_opg(user) or scope_of(user).has_anywhere(Role.LIAISON)


def may_propose_pack(user: Principal, experiment_id: int) -> bool:
    """Return whether the user may propose a pack, as the OPG and the experiment's liaisons may."""
    return is_opg(user) or is_liaison(user, experiment_id)
