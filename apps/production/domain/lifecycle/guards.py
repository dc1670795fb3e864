"""Guards: conditions of a move besides its actor and the state."""

from collections.abc import Callable, Mapping
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


#: Answers of checks whose facts have been read already, by the name of the check.
KnownAnswers = Mapping[str, Callable[[Transition], str]]

_GUARDS: dict[str, Callable[[Transition, "Request"], str]] = {
    "held_from_there": held_from_there,
    "has_successor": has_successor,
}
#: Guards that hold if no check of a registry objects, with the kind of these checks.
_GUARDS_BY_CHECKS = {
    "output_is_good": (CLOSING_CHECKS, "closing"),
    "has_no_jobs": (JOB_CHECKS, "job"),
}
#: Guards that depend on input of the move itself. The move is offered before they hold.
_INPUT_GUARDS = {"has_successor"}


def refusal_of(step: Transition, request: "Request") -> str:
    """Return why a move cannot be made now, or an empty text."""
    if not step.guard:
        return ""
    if step.guard in _GUARDS_BY_CHECKS:
        return _objection_of(step, request, {})
    return _GUARDS[step.guard](step, request)


def may_offer(step: Transition, request: "Request", *, answers: KnownAnswers | None = None) -> bool:
    """Return whether a page offers a move; `answers` save the queries of their checks."""
    if step.guard in _INPUT_GUARDS:
        return True
    if step.guard in _GUARDS_BY_CHECKS:
        return not _objection_of(step, request, answers or {})
    return not refusal_of(step, request)


def _objection_of(step: Transition, request: "Request", answers: KnownAnswers) -> str:
    """Return the first objection of a check. A check that cannot be loaded objects."""
    checks, kind = _GUARDS_BY_CHECKS[step.guard]
    for name in checks.names():
        if name in answers:
            objection = answers[name](step)
        else:
            try:
                objection = checks.get(name)(step, request)
            except UnknownPlugin:
                objection = f"the {kind} check “{name}” cannot be loaded."
        if objection:
            return objection
    return ""
