"""What a person writes in a request, apart from the database: form, API, checks and services all speak it.

Both classes may hold anything: a draft on its way is not always right. By their annotations pydantic reads data as JSON
and YAML have it (`plain.read_plain`); titles, help and bounds of the fields are in `types/fields.yaml`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import date
from itertools import zip_longest
from typing import Annotated, Any

from pydantic import BeforeValidator, ConfigDict, InstanceOf, PlainValidator

from apps.production.domain.types.arguments import Argument, Text, Value
from apps.production.domain.types.declaration import StageType, Workflow, general
from apps.production.domain.types.fields import CORE, REQUEST
from apps.production.enums import RequestedPriority

MAX_STAGES = 100


def without_nulls(data: Any) -> Any:
    """Leave out what is null: it is as good as not there."""
    return {name: value for name, value in data.items() if value is not None} if isinstance(data, dict) else data


def _day(value: Any) -> date:
    return value if isinstance(value, date) else date.fromisoformat(str(REQUEST["deadline"].read(value)))


def _arguments(data: Any, declared: Workflow | StageType) -> dict[str, Value]:
    read: dict[str, Value] = without_nulls(declared.reader.validate_python(without_nulls(data)))
    return read


def _stage(data: Any, info: Any) -> Any:
    """Let a stage that does not say which be of the first kind."""
    return {"kind": info.context.stages[0].key, **without_nulls(data)} if isinstance(data, dict) else data


def _request_arguments(data: Any, info: Any) -> dict[str, Value]:
    return _arguments(data, info.context)


def _stage_arguments(data: Any, info: Any) -> dict[str, Value]:
    return _arguments(data, info.context.stage(info.data.get("kind", "")))


def _number(name: str) -> PlainValidator:
    return PlainValidator(CORE[name].read)


@dataclass(frozen=True, kw_only=True)
class StageContent:
    """One step of the chain; what is not known yet is empty or None. `services` are slugs.

    `kind` is the key of its type in the workflow; `arguments` are those that the type declares beside the fields here.
    """

    __pydantic_config__ = ConfigDict(extra="forbid")

    kind: Text = "stage"
    name: Text = ""
    release: Text = ""
    configuration: Text = ""
    input_dataset: Text = ""
    events: Annotated[int | None, _number("events")] = None
    jobs: Annotated[int | None, _number("jobs")] = None
    memory_bytes: Annotated[int | None, _number("memory_bytes")] = None
    wall_seconds: Annotated[int | None, _number("wall_seconds")] = None
    output_dataset: Text = ""
    services: tuple[Text, ...] = ()
    arguments: Annotated[Mapping[str, Value], PlainValidator(_stage_arguments)] = field(default_factory=dict)

    def value(self, name: str) -> Any:
        """Return the value of an argument, whether it is a field here or not."""
        return getattr(self, name) if name in CORE else self.arguments.get(name)


@dataclass(frozen=True, kw_only=True)
class RequestContent:
    """All that a liaison writes; a stage without `input_dataset` reads the output of the one before.

    `workflow` is the version of its type, which stays; `arguments` are those that it declares for the request.
    """

    __pydantic_config__ = ConfigDict(extra="forbid")

    workflow: InstanceOf[Workflow] = field(default_factory=general)
    title: Text = ""
    purpose: Text = ""
    deadline: Annotated[date | None, BeforeValidator(_day)] = None
    requested_priority: Text = RequestedPriority.NORMAL
    priority_reason: Text = ""
    arguments: Annotated[Mapping[str, Value], PlainValidator(_request_arguments)] = field(default_factory=dict)
    stages: tuple[Annotated[StageContent, BeforeValidator(_stage)], ...] = ()


#: Fields of the request itself, without its stages, and those of a stage without its services.
FIELDS = tuple(f.name for f in fields(RequestContent) if f.name in REQUEST)
STAGE_FIELDS = tuple(f.name for f in fields(StageContent) if f.name in CORE and f.name != "services")


def field_text(name: str, value: Any) -> str:
    """Return the value of a field as a person would type it."""
    if isinstance(value, tuple):
        return ", ".join(sorted(value))
    return (REQUEST.get(name) or CORE[name]).write(value)


def changes(old: RequestContent, new: RequestContent) -> list[dict[str, str]]:
    """Return what differs, field by field: path, old and new as text; a stage that came or went is one change."""
    found = _differences("", old, new, FIELDS, new.workflow)
    for position, (before, after) in enumerate(zip_longest(old.stages, new.stages)):
        path = f"stages.{position}"
        if before is None or after is None or before.kind != after.kind:
            found.append((path, _title(before), _title(after)))
        else:
            names = (*STAGE_FIELDS, "services")
            found += _differences(f"{path}.", before, after, names, new.workflow.stage(after.kind))
    return [{"path": path, "old": was, "new": now} for path, was, now in found if was != now]


def _differences(
    path: str, old: Any, new: Any, names: Sequence[str], declared: Workflow | StageType
) -> list[tuple[str, str, str]]:
    found = [
        (f"{path}{name}", field_text(name, getattr(old, name)), field_text(name, getattr(new, name))) for name in names
    ]
    for name in dict.fromkeys([*old.arguments, *new.arguments]):
        write = (declared.argument(name) or Argument(name="unknown")).write
        found.append((f"{path}arguments.{name}", write(old.arguments.get(name)), write(new.arguments.get(name))))
    return found


def _title(stage: StageContent | None) -> str:
    return "" if stage is None else stage.name or "unnamed"
