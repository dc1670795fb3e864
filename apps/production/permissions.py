"""Who may write, move and prioritise which request."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from apps.accounts.enums import Role
from apps.accounts.models import Principal, User
from apps.accounts.permissions import is_admin, is_approver, is_liaison, scope_of
from apps.production.enums import ARGUMENT_EDITABLE, EDITABLE, PORTAL, PRIORITISED, Actor, RequestState

if TYPE_CHECKING:
    from apps.production.models import Request


def is_requester(user: Principal, request: "Request") -> bool:
    """Tell whether this person made the request or was the last to submit it."""
    return isinstance(user, User) and user.pk in {request.created_by_id, request.submitted_by_id}


def _liaison(user: Principal, request: "Request") -> bool:
    return is_liaison(user, request.experiment_id)


def _approver(user: Principal, request: "Request") -> bool:
    return is_approver(user, request.experiment_id) and not is_requester(user, request)


def _operator(user: Principal, request: "Request") -> bool:
    scope = scope_of(user)
    return scope.has(Role.APPROVER, request.experiment_id) or scope.has(Role.SHIFTER, request.experiment_id)


def _either(user: Principal, request: "Request") -> bool:
    is_sent = request.state != RequestState.DRAFT  # what is not sent yet is the liaison's alone
    return _liaison(user, request) or (is_sent and is_approver(user, request.experiment_id))


def _operator_or_portal(user: Principal, request: "Request") -> bool:
    return _portal(user, request) or _operator(user, request)


def _portal(user: Principal, request: "Request") -> bool:
    return user == PORTAL


PREDICATES: dict[Actor, Callable[[Principal, "Request"], bool]] = {
    Actor.LIAISON: _liaison,
    Actor.APPROVER: _approver,
    Actor.OPERATOR: _operator,
    Actor.OPERATOR_OR_PORTAL: _operator_or_portal,
    Actor.LIAISON_OR_APPROVER: _either,
    Actor.PORTAL: _portal,
}


def may_edit(user: Principal, request: "Request") -> bool:
    """Tell whether the person may write; `changing` tells what, in states that are past a draft."""
    return request.state in EDITABLE | ARGUMENT_EDITABLE and _liaison(user, request)


def may_prioritise(user: Principal, request: "Request") -> bool:
    return request.state in PRIORITISED and _approver(user, request)


def may_move(user: Principal, request: "Request") -> bool:
    """Tell whether the person may move it in the queue by hand, if it is there."""
    return _approver(user, request)


def may_set_shares(user: User) -> bool:
    """Shares are of all experiments: an approver for all of them, or an admin, sets them."""
    return is_approver(user) or is_admin(user)


def may_change_groups(user: User) -> bool:
    """Who signs is decided in the back office, by whoever it lets change groups of approval."""
    return user.has_perm("production.change_approvalgroup")
