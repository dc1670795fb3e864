"""Guards: conditions of a move besides its actor and the state."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from django.conf import settings

from apps.core.domain.plugins import Registry, UnknownPlugin
from apps.production.domain.lifecycle.transitions import Transition

if TYPE_CHECKING:
    from apps.production.models import Request


def held_from_there(step: Transition, request: "Request") -> str:
    """Require that a released request returns to the state in which it was put on hold."""
    if request.held_from == step.new:
        return ""
    return f"it was put on hold while {request.held_from or 'not held'}."


def has_successor(step: Transition, request: "Request") -> str:
    """Require that a superseded request names its successor."""
    if request.superseded_by_id:
        return ""
    return "choose the request that replaces it."


class MoveCheck(Protocol):
    """A plugin that can object to a move of a request, such as closing it.

    It returns why the move cannot be made now, or an empty text.
    """

    def __call__(self, step: Transition, request: "Request") -> str: ...


CLOSING_CHECKS: Registry[MoveCheck] = Registry("opsportal.closing_checks", settings.CLOSING_CHECKS)
#: Whether a started request has jobs.
JOB_CHECKS: Registry[MoveCheck] = Registry("opsportal.job_checks", settings.JOB_CHECKS)


def output_is_good(step: Transition, request: "Request") -> str:
    """Require that no closing check objects. A check that cannot be loaded objects."""
    return _objection_of(CLOSING_CHECKS, "closing", step, request)


def has_no_jobs(step: Transition, request: "Request") -> str:
    """Require that nothing was submitted for a request that returns to the queue."""
    return _objection_of(JOB_CHECKS, "job", step, request)


def _objection_of(
    checks: Registry[MoveCheck], kind: str, step: Transition, request: "Request"
) -> str:
    for name in checks.names():
        try:
            why = checks.get(name)(step, request)
        except UnknownPlugin:
            why = f"the {kind} check “{name}” cannot be loaded."
        if why:
            return why
    return ""


GUARDS: dict[str, Callable[[Transition, "Request"], str]] = {
    guard.__name__: guard for guard in (held_from_there, has_successor, output_is_good, has_no_jobs)
}
#: Guards that depend on input of the move itself. The move is offered before they hold.
INPUT_GUARDS = {"has_successor"}


def refusal_of(step: Transition, request: "Request", *, offered: bool = False) -> str:
    """Return why a move cannot be made now, or an empty text."""
    if not step.guard or (offered and step.guard in INPUT_GUARDS):
        return ""
    return GUARDS[step.guard](step, request)
