"""What a person writes in a request, apart from the database: form, API, checks and services all speak it."""

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from datetime import date
from itertools import zip_longest
from typing import Any

from apps.production.enums import RequestedPriority
from apps.production.quantities import format_count, format_duration, format_size

MAX_STAGES = 100
#: Longest texts, by field of the request and of a stage.
MAX_LENGTH = {"title": 200, "purpose": 10_000, "priority_reason": 2_000}
STAGE_MAX_LENGTH = {"name": 64, "release": 100, "configuration": 300, "input_dataset": 300, "output_dataset": 300}
#: Largest numbers of a stage: what a typing error would pass.
STAGE_MAX = {
    "events": 10**12,
    "jobs": 10**6,
    "memory_bytes": 16 * 10**12,
    "wall_seconds": 30 * 86_400,
}
NUMBERS = tuple(STAGE_MAX)


@dataclass(frozen=True, kw_only=True)
class StageContent:
    """One step of the chain; what is not known yet is empty or None. `services` are slugs."""

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


@dataclass(frozen=True, kw_only=True)
class RequestContent:
    """All that a liaison writes; a stage without `input_dataset` reads the output of the one before."""

    title: str = ""
    purpose: str = ""
    deadline: date | None = None
    requested_priority: str = RequestedPriority.NORMAL
    priority_reason: str = ""
    stages: tuple[StageContent, ...] = field(default=())


#: Fields of the request itself, without its stages, and those of a stage without its services.
FIELDS = tuple(f.name for f in fields(RequestContent) if f.name != "stages")
STAGE_FIELDS = tuple(f.name for f in fields(StageContent) if f.name != "services")


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
    for position, (before, after) in enumerate(zip_longest(old.stages, new.stages)):
        path = f"stages.{position}"
        if before is None or after is None:
            found.append({"path": path, "old": _title(before), "new": _title(after)})
            continue
        found += [
            _change(f"{path}.{name}", getattr(before, name), getattr(after, name), name)
            for name in (*STAGE_FIELDS, "services")
        ]
    return [change for change in found if change["old"] != change["new"]]


def _change(path: str, old: Any, new: Any, name: str) -> dict[str, str]:
    return {"path": path, "old": written(name, old), "new": written(name, new)}


def _title(stage: StageContent | None) -> str:
    return "" if stage is None else stage.name or "unnamed"
