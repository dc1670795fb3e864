"""Permissions to write, move and prioritise requests."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from apps.accounts.enums import Role
from apps.accounts.models import Principal, User
from apps.accounts.permissions import is_approver, is_liaison, is_operator, scope_of
from apps.production.enums import (
    ARGUMENT_EDITABLE,
    EDITABLE,
    PORTAL,
    POSTPONABLE,
    PRIORITISED,
    Actor,
    RequestState,
)

if TYPE_CHECKING:
    from apps.production.models import Request, RequestTemplate


def is_requester(user: Principal, request: "Request") -> bool:
    """Whether this user created or edited the request, or was the last to submit it."""
    return isinstance(user, User) and user.pk in request.requester_ids


def may_create(user: Principal) -> bool:
    """Whether the user may create requests, as a liaison of any experiment."""
    return scope_of(user).has_anywhere(Role.LIAISON)


def is_liaison_of(user: Principal, owned: "Request | RequestTemplate") -> bool:
    return is_liaison(user, owned.experiment_id)


def _approver(user: Principal, request: "Request") -> bool:
    return is_approver(user, request.experiment_id) and not is_requester(user, request)


def _operator(user: Principal, request: "Request") -> bool:
    return is_operator(user, request.experiment_id)


def _liaison_or_approver(user: Principal, request: "Request") -> bool:
    # Drafts belong to the liaisons.
    is_submitted = request.state != RequestState.DRAFT
    return is_liaison_of(user, request) or (
        is_submitted and is_approver(user, request.experiment_id)
    )


PREDICATES: dict[Actor, Callable[[Principal, "Request"], bool]] = {
    Actor.LIAISON: is_liaison_of,
    Actor.APPROVER: _approver,
    Actor.OPERATOR: _operator,
    Actor.OPERATOR_OR_PORTAL: lambda user, request: user == PORTAL or _operator(user, request),
    Actor.LIAISON_OR_APPROVER: _liaison_or_approver,
    Actor.PORTAL: lambda user, _: user == PORTAL,
}


def may_edit(user: Principal, request: "Request") -> bool:
    """Whether the user may edit the request.

    `content.changes` decides which changes each state allows.
    """
    return request.state in EDITABLE | ARGUMENT_EDITABLE and is_liaison_of(user, request)


def may_prioritise(user: Principal, request: "Request") -> bool:
    return request.state in PRIORITISED and _approver(user, request)


def may_operate(user: Principal, request: "Request") -> bool:
    """Whether a user may start, hold and retry the jobs of a request."""
    return _operator(user, request)


def may_reschedule(user: Principal, request: "Request") -> bool:
    """Whether the user may postpone the deadline of a submitted request, and request a class."""
    return request.state in POSTPONABLE and is_liaison_of(user, request)


def may_reorder_queue(user: Principal, request: "Request") -> bool:
    return _approver(user, request)


def may_set_shares(user: User) -> bool:
    """Whether the user may set shares, which affect all experiments."""
    return is_approver(user) or scope_of(user).has(Role.ADMIN)


def may_change_groups(user: User) -> bool:
    """Whether the user may change approval groups, as permitted in the admin."""
    return user.has_perm("production.change_approvalgroup")
