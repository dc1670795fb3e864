"""The effect of a change in a state: allowed, allowed with new signatures, or refused.

A change that needs new signatures is called material.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from apps.production.domain.content.model import RequestContent, list_changes
from apps.production.domain.types.arguments import Argument
from apps.production.domain.types.faults import Problems
from apps.production.enums import (
    ARGUMENT_EDITABLE,
    CHANGEABLE,
    EDITABLE,
    IMMATERIAL,
    POSTPONABLE,
    RequestState,
)


@dataclass(frozen=True)
class ChangeReview:
    """All changes, those that need new signatures, and messages by path for refused changes."""

    changes: list[dict[str, str]]
    material: list[dict[str, str]]
    refused: Problems


def review_changes(state: str, old: RequestContent, new: RequestContent) -> ChangeReview:
    all_changes = list_changes(old, new)
    if state in EDITABLE:
        return ChangeReview(
            all_changes,
            [change for change in all_changes if not _is_immaterial(change, old, new)],
            {},
        )

    material = []
    for change in all_changes:
        argument = _argument(change["path"], new)
        declared = (
            argument is not None and state in ARGUMENT_EDITABLE and state in argument.editable_in
        )
        if not declared and not (state in CHANGEABLE and _is_immaterial(change, old, new)):
            material.append(change)
    if state in CHANGEABLE:
        return ChangeReview(all_changes, material, {})
    refusal = f"This cannot be changed while the request is {RequestState(state).label}."
    return ChangeReview(all_changes, [], {change["path"]: [refusal] for change in material})


def may_change(state: str, content: RequestContent) -> bool:
    """Whether anything can be changed in this state.

    Past the queue, only declared arguments can be changed.
    """
    if state in EDITABLE or state in CHANGEABLE:
        return True
    if state not in ARGUMENT_EDITABLE:
        return False
    declared = list(content.workflow.arguments)
    for kind in content.workflow.stages:
        declared += kind.arguments
    return any(state in argument.editable_in for argument in declared)


def review_postponement(
    state: str, old: RequestContent, new: RequestContent
) -> ChangeReview | None:
    """Return the review of a mere postponement of the deadline, in a state that allows it.

    None for any other change.
    """
    changed = list_changes(old, new)
    is_only = [change["path"] for change in changed] == ["deadline"]
    is_postponed = is_only and state in POSTPONABLE and _is_immaterial(changed[0], old, new)
    return ChangeReview(changed, [], {}) if is_postponed else None


def _is_immaterial(change: Mapping[str, str], old: RequestContent, new: RequestContent) -> bool:
    if change["path"] != "deadline":
        return change["path"] in IMMATERIAL
    return old.deadline is not None and new.deadline is not None and new.deadline > old.deadline


def _argument(path: str, content: RequestContent) -> Argument | None:
    """Return the declared argument at a path.

    Examples: `arguments.runs`, `stages.0.jobs`, `stages.0.arguments.seed`.
    """
    match path.split("."):
        case ["arguments", name]:
            return content.workflow.argument(name)
        case ["stages", position, name] | ["stages", position, "arguments", name]:
            return content.workflow.stage(content.stages[int(position)].kind).argument(name)
    return None
