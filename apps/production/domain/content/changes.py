"""What a change of a request past its draft means: refused, without weight, or material; from the table in `enums`."""

from collections.abc import Mapping
from dataclasses import dataclass

from apps.production.domain.content.model import RequestContent, changes
from apps.production.domain.types.arguments import Argument
from apps.production.domain.types.faults import Problems
from apps.production.enums import ARGUMENT_EDITABLE, CHANGEABLE, EDITABLE, IMMATERIAL, RequestState

Change = Mapping[str, str]


@dataclass(frozen=True)
class ChangeReview:
    """Every change there is, those that need signatures anew, and what may not be changed now, by field path."""

    changes: list[dict[str, str]]
    material: list[dict[str, str]]
    refused: Problems


def review_changes(state: str, old: RequestContent, new: RequestContent) -> ChangeReview:
    """Tell what a change means in a state."""
    found = changes(old, new)
    if state in EDITABLE:
        return ChangeReview(found, [c for c in found if not _is_immaterial(c, old, new)], {})
    heavy = [c for c in found if not _stays_signed(c, state, old, new)]
    if state in CHANGEABLE:
        return ChangeReview(found, heavy, {})
    words = RequestState(state).label
    return ChangeReview(found, [], {c["path"]: [f"This cannot be changed while it is {words}."] for c in heavy})


def may_change(state: str, content: RequestContent) -> bool:
    """Tell whether anything of it may be changed in this state: past the queue, only what its type declares so."""
    if state in EDITABLE or state in CHANGEABLE:
        return True
    declared = [*content.workflow.arguments, *(a for kind in content.workflow.stages for a in kind.arguments)]
    return state in ARGUMENT_EDITABLE and any(state in argument.editable_in for argument in declared)


def _stays_signed(change: Change, state: str, old: RequestContent, new: RequestContent) -> bool:
    if state in CHANGEABLE and _is_immaterial(change, old, new):
        return True
    argument = _argument(change["path"], new)
    return argument is not None and state in ARGUMENT_EDITABLE and state in argument.editable_in


def _is_immaterial(change: Change, old: RequestContent, new: RequestContent) -> bool:
    if change["path"] not in IMMATERIAL:
        return False
    if change["path"] != "deadline":
        return True
    return old.deadline is not None and new.deadline is not None and new.deadline > old.deadline


def _argument(path: str, content: RequestContent) -> Argument | None:
    """Return the declared argument at a path such as `arguments.runs`, `stages.0.jobs`, `stages.0.arguments.seed`."""
    match path.split("."):
        case ["arguments", name]:
            return content.workflow.argument(name)
        case ["stages", position, name] | ["stages", position, "arguments", name]:
            return content.workflow.stage(content.stages[int(position)].kind).argument(name)
    return None
