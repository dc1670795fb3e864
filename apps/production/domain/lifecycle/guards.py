"""What must hold, beside the person and the state, for a move to be made."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from django.conf import settings

from apps.core.domain.plugins import Registry, UnknownPlugin
from apps.production.domain.lifecycle.transitions import Transition

if TYPE_CHECKING:
    from apps.production.models import Request


def held_from_there(step: Transition, request: "Request") -> str:
    """A held request goes back to where it was held."""
    return "" if request.held_from == step.new else f"it was held while {request.held_from or 'nowhere'}."


def has_successor(step: Transition, request: "Request") -> str:
    """Another request takes its place."""
    return "" if request.superseded_by_id else "name the request that takes its place."


class ClosingCheck(Protocol):
    """A plugin that has a say in closing a request: it says why a move cannot close it now, or nothing."""

    def __call__(self, step: Transition, request: "Request") -> str: ...


CLOSING_CHECKS: Registry[ClosingCheck] = Registry("opsportal.closing_checks", settings.CLOSING_CHECKS)


def output_is_good(step: Transition, request: "Request") -> str:
    """No closing check has anything against it; one that cannot be loaded may have."""
    for name in CLOSING_CHECKS.names():
        try:
            why = CLOSING_CHECKS.get(name)(step, request)
        except UnknownPlugin:
            why = f"the closing check “{name}” cannot be loaded."
        if why:
            return why
    return ""


GUARDS: dict[str, Callable[[Transition, "Request"], str]] = {
    guard.__name__: guard for guard in (held_from_there, has_successor, output_is_good)
}
#: What a person gives along with the move: it is offered although it does not hold yet.
GIVEN = {"has_successor"}


def refusal_of(step: Transition, request: "Request", *, offered: bool = False) -> str:
    """Return why a move cannot be made now, or an empty text."""
    if not step.guard or (offered and step.guard in GIVEN):
        return ""
    return GUARDS[step.guard](step, request)
