"""The content of a request, independent of the database.

Form, API, checks and domain functions share it. Drafts may be invalid, and so may their content.
Pydantic reads it from JSON and YAML data by the annotations (`serialization.read_plain`). Titles,
help and limits of the fields are in `types/fields.yaml`.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import date
from itertools import zip_longest
from typing import Annotated, Any, NamedTuple

from pydantic import BeforeValidator, ConfigDict, InstanceOf, PlainValidator

from apps.core.domain.dates import OUT_OF_RANGE, in_range
from apps.production.domain.types.arguments import Argument, Text, Value
from apps.production.domain.types.declaration import StageType, Workflow, general_workflow
from apps.production.domain.types.fields import CORE, REQUEST
from apps.production.enums import RequestedPriority

MAX_STAGES = 100


def without_nulls(data: Any) -> Any:
    """Return a mapping without its null values. Other data is returned unchanged."""
    if not isinstance(data, dict):
        return data
    return {name: value for name, value in data.items() if value is not None}


def _day(value: Any) -> date:
    if isinstance(value, date):
        day = value
    else:
        day = date.fromisoformat(str(REQUEST["deadline"].read(value)))
    if not in_range(day):
        raise ValueError(OUT_OF_RANGE)
    return day


def _arguments(data: Any, declared: Workflow | StageType) -> dict[str, Value]:
    read: dict[str, Value] = without_nulls(declared.reader.validate_python(without_nulls(data)))
    return read


def _stage(data: Any, info: Any) -> Any:
    """Add the first kind of stage as the default."""
    if not isinstance(data, dict):
        return data
    return {"kind": info.context.stages[0].key, **without_nulls(data)}


def _stage_arguments(data: Any, info: Any) -> dict[str, Value]:
    return _arguments(data, info.context.stage(info.data.get("kind", "")))


def _stage_number(name: str) -> PlainValidator:
    return PlainValidator(CORE[name].read)


@dataclass(frozen=True, kw_only=True)
class StageContent:
    """A stage of the chain. Unknown values are empty or None; `services` are slugs.

    `kind` is the key of the stage type in the workflow. `arguments` are those that the type
    declares besides these fields.
    """

    __pydantic_config__ = ConfigDict(extra="forbid")

    kind: Text = "stage"
    name: Text = ""
    release: Text = ""
    configuration: Text = ""
    input_dataset: Text = ""
    events: Annotated[int | None, _stage_number("events")] = None
    jobs: Annotated[int | None, _stage_number("jobs")] = None
    memory_bytes: Annotated[int | None, _stage_number("memory_bytes")] = None
    wall_seconds: Annotated[int | None, _stage_number("wall_seconds")] = None
    retry_memory_bytes: Annotated[int | None, _stage_number("retry_memory_bytes")] = None
    retry_wall_seconds: Annotated[int | None, _stage_number("retry_wall_seconds")] = None
    output_dataset: Text = ""
    services: tuple[Text, ...] = ()
    arguments: Annotated[Mapping[str, Value], PlainValidator(_stage_arguments)] = field(
        default_factory=dict
    )

    def value(self, name: str) -> Any:
        if name in CORE:
            return getattr(self, name)
        return self.arguments.get(name)


@dataclass(frozen=True, kw_only=True)
class RequestContent:
    """The content of a request.

    A stage without `input_dataset` reads the output of the previous stage. `workflow` is the
    version of the workflow type; `arguments` are those that it declares for the request.
    """

    __pydantic_config__ = ConfigDict(extra="forbid")

    workflow: InstanceOf[Workflow] = field(default_factory=general_workflow)
    title: Text = ""
    campaign: Text = ""
    purpose: Text = ""
    scan: Text = ""
    deadline: Annotated[date | None, BeforeValidator(_day)] = None
    requested_priority: Text = RequestedPriority.NORMAL
    priority_reason: Text = ""
    arguments: Annotated[
        Mapping[str, Value], PlainValidator(lambda data, info: _arguments(data, info.context))
    ] = field(default_factory=dict)
    stages: tuple[Annotated[StageContent, BeforeValidator(_stage)], ...] = ()


#: Fields of the request without its stages, and of a stage without its services.
FIELDS = tuple(attribute.name for attribute in fields(RequestContent) if attribute.name in REQUEST)
STAGE_FIELDS = tuple(
    attribute.name
    for attribute in fields(StageContent)
    if attribute.name in CORE and attribute.name != "services"
)


def values_of(record: object, names: Iterable[str]) -> dict[str, Any]:
    """Return the values of these attributes by name."""
    return {name: getattr(record, name) for name in names}


def field_text(name: str, value: Any) -> str:
    if isinstance(value, tuple):
        return ", ".join(sorted(value))
    return (REQUEST.get(name) or CORE[name]).write(value)


class FieldTexts(NamedTuple):
    """The texts of a field in two contents."""

    path: str
    old: str
    new: str


def list_changes(old: RequestContent, new: RequestContent) -> list[dict[str, str]]:
    """Return the differences as path, old text and new text of each field.

    An added or removed stage is one change.
    """
    texts = _field_texts("", old, new, FIELDS, new.workflow)
    for position, (before, after) in enumerate(zip_longest(old.stages, new.stages)):
        path = f"stages.{position}"
        if before is None or after is None or before.kind != after.kind:
            texts.append(FieldTexts(path, _title(before), _title(after)))
        else:
            names = (*STAGE_FIELDS, "services")
            declared = new.workflow.stage(after.kind)
            texts += _field_texts(f"{path}.", before, after, names, declared)
    return [text._asdict() for text in texts if text.old != text.new]


def texts_of(content: RequestContent) -> dict[str, str]:
    """Return the text of every field by its path."""
    texts = _field_texts("", content, content, FIELDS, content.workflow)
    for position, stage in enumerate(content.stages):
        declared = content.workflow.stage(stage.kind)
        texts += _field_texts(
            f"stages.{position}.", stage, stage, (*STAGE_FIELDS, "services"), declared
        )
    return {text.path: text.new for text in texts}


def _field_texts(
    path: str, old: Any, new: Any, names: Sequence[str], declared: Workflow | StageType
) -> list[FieldTexts]:
    """Return the texts of these fields and of all arguments; `path` is the beginning of each."""
    texts = []
    for name in names:
        old_text = field_text(name, getattr(old, name))
        new_text = field_text(name, getattr(new, name))
        texts.append(FieldTexts(f"{path}{name}", old_text, new_text))
    for name in dict.fromkeys([*old.arguments, *new.arguments]):
        argument = declared.argument(name) or Argument(name="unknown")
        old_text = argument.write(old.arguments.get(name))
        new_text = argument.write(new.arguments.get(name))
        texts.append(FieldTexts(f"{path}arguments.{name}", old_text, new_text))
    return texts


def _title(stage: StageContent | None) -> str:
    return "" if stage is None else stage.name or "unnamed"
