"""What a person writes in a request, apart from the database: form, API, checks and services all speak it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from datetime import date
from itertools import zip_longest
from typing import Any

from apps.production.domain.content.quantities import format_count, format_duration, format_size
from apps.production.domain.types.arguments import Argument, Value
from apps.production.domain.types.builtin import general
from apps.production.domain.types.declaration import CORE, Workflow
from apps.production.enums import RequestedPriority


@dataclass(frozen=True, kw_only=True)
class StageContent:
    """One step of the chain; what is not known yet is empty or None. `services` are slugs.

    `kind` is the key of its type in the workflow; `arguments` are those that the type declares beside the fields here.
    """

    kind: str = "stage"
    name: str = ""
    release: str = ""
    configuration: str = ""
    input_dataset: str = ""
    events: int | None = None
    jobs: int | None = None
    memory_bytes: int | None = None
    wall_seconds: int | None = None
    output_dataset: str = ""
    services: tuple[str, ...] = ()
    arguments: Mapping[str, Value] = field(default_factory=dict)

    def value(self, name: str) -> Any:
        """Return the value of an argument, whether it is a field here or not."""
        return getattr(self, name) if name in CORE else self.arguments.get(name)


@dataclass(frozen=True, kw_only=True)
class RequestContent:
    """All that a liaison writes; a stage without `input_dataset` reads the output of the one before.

    `workflow` is the version of its type, which stays; `arguments` are those that it declares for the request.
    """

    workflow: Workflow = field(default_factory=general)
    arguments: Mapping[str, Value] = field(default_factory=dict)
    title: str = ""
    purpose: str = ""
    deadline: date | None = None
    requested_priority: str = RequestedPriority.NORMAL
    priority_reason: str = ""
    stages: tuple[StageContent, ...] = field(default=())


#: Fields of the request itself, without its stages, and those of a stage without its services.
FIELDS = tuple(f.name for f in fields(RequestContent) if f.name not in {"stages", "workflow", "arguments"})
STAGE_FIELDS = tuple(f.name for f in fields(StageContent) if f.name not in {"services", "kind", "arguments"})


#: How numbers are written for people; `quantities` reads them back.
FORMATS: dict[str, Callable[[int], str]] = {
    "events": format_count,
    "jobs": format_count,
    "memory_bytes": format_size,
    "wall_seconds": format_duration,
}


def written(name: str, value: Any) -> str:
    """Return the value of a field as a person would type it."""
    if value is None:
        return ""
    return ", ".join(sorted(value)) if isinstance(value, tuple) else FORMATS.get(name, str)(value)


def changes(old: RequestContent, new: RequestContent) -> list[dict[str, str]]:
    """Return what differs, field by field: path, old and new as text; a stage that came or went is one change."""
    found = [_change(name, getattr(old, name), getattr(new, name), name) for name in FIELDS]
    found += _argument_changes("arguments", old.arguments, new.arguments, new.workflow.argument)
    for position, (before, after) in enumerate(zip_longest(old.stages, new.stages)):
        path = f"stages.{position}"
        if before is None or after is None or before.kind != after.kind:
            found.append({"path": path, "old": _title(before), "new": _title(after)})
            continue
        found += [
            _change(f"{path}.{name}", getattr(before, name), getattr(after, name), name)
            for name in (*STAGE_FIELDS, "services")
        ]
        declared = new.workflow.stage(after.kind).argument
        found += _argument_changes(f"{path}.arguments", before.arguments, after.arguments, declared)
    return [change for change in found if change["old"] != change["new"]]


def _change(path: str, old: Any, new: Any, name: str) -> dict[str, str]:
    return {"path": path, "old": written(name, old), "new": written(name, new)}


def _argument_changes(
    path: str, old: Mapping[str, Value], new: Mapping[str, Value], declared: Callable[[str], Argument | None]
) -> list[dict[str, str]]:
    def text(values: Mapping[str, Value], name: str) -> str:
        argument, value = declared(name), values.get(name)
        return argument.write(value) if argument else "" if value is None else str(value)

    names = dict.fromkeys([*old, *new])
    return [{"path": f"{path}.{name}", "old": text(old, name), "new": text(new, name)} for name in names]


def _title(stage: StageContent | None) -> str:
    return "" if stage is None else stage.name or "unnamed"
