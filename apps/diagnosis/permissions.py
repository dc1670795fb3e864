"""Who may correct a verdict or re-analyse a log,
and who may change the catalogue of known errors.
"""

from apps.accounts.enums import Role
from apps.accounts.models import Principal
from apps.accounts.permissions import is_liaison, is_opg, scope_of


def may_correct_verdict(user: Principal, experiment_id: int | None) -> bool:
    """Return whether the user belongs to the OPG or is a liaison of the job's experiment."""
    return is_opg(user) or (experiment_id is not None and is_liaison(user, experiment_id))


def may_edit_catalogue(user: Principal) -> bool:
    """Return whether the user may change known errors and decide on proposals:
    approvers and admins of the OPG.
    """
    return any(scope_of(user).has(role) for role in (Role.APPROVER, Role.ADMIN))


def may_propose_known_errors(user: Principal) -> bool:
    """Return whether the user may propose changes: the OPG, and liaisons."""
    return is_opg(user) or scope_of(user).has_anywhere(Role.LIAISON)


def may_propose_pack(user: Principal, experiment_id: int) -> bool:
    """Return whether the user may propose a pack of the experiment: the OPG, and its liaisons."""
    return is_opg(user) or is_liaison(user, experiment_id)
