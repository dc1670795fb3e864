"""What a person writes in a request, apart from the database: form, API, checks and services all speak it."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, fields
from datetime import date
from typing import Any

from apps.production.enums import RequestedPriority

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


def changes(old: RequestContent, new: RequestContent) -> list[dict[str, Any]]:
    """Return what differs, field by field: path, old and new as text."""
    before, after = dict(_leaves(old)), dict(_leaves(new))
    paths = [*after, *(path for path in before if path not in after)]
    return [
        {"path": path, "old": before.get(path, ""), "new": after.get(path, "")}
        for path in paths
        if before.get(path, "") != after.get(path, "")
    ]


def _leaves(content: RequestContent) -> Iterator[tuple[str, str]]:
    values = asdict(content)
    for position, stage in enumerate(values.pop("stages")):
        stage["services"] = ", ".join(sorted(stage["services"]))
        yield from ((f"stages.{position}.{name}", _text(value)) for name, value in stage.items())
    yield from ((name, _text(value)) for name, value in values.items())


def _text(value: object) -> str:
    return "" if value is None else str(value)
