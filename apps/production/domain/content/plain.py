"""What a request holds as plain data, as JSON and YAML have it, and back with every fault by field path."""

import re
from datetime import date, datetime
from typing import Any

from apps.production.domain.content.model import FIELDS, STAGE_FIELDS, RequestContent, StageContent
from apps.production.domain.types.arguments import Argument, Value
from apps.production.domain.types.declaration import CORE, StageType, Workflow
from apps.production.domain.types.reader import Reader
from apps.production.limits import MAX_STAGES, NUMBERS

Problems = dict[str, list[str]]

#: What PostgreSQL cannot store as text: NUL, and halves of surrogate pairs.
_NOT_TEXT = re.compile("[\0\ud800-\udfff]")
_TEXT = "This must be text; put it in quotes."
#: Names at the top of the data that are no fields of the request.
APART = ("experiment", "workflow", "workflow_version")


def plain(content: RequestContent) -> dict[str, Any]:
    """Return all of a request's content as data that `read_plain` reads back the same."""
    fields = {name: getattr(content, name) for name in FIELDS}
    fields["deadline"] = content.deadline.isoformat() if content.deadline else None
    fields["requested_priority"] = str(content.requested_priority)
    return {
        "workflow": content.workflow.key,
        "workflow_version": content.workflow.number,
        **fields,
        "arguments": dict(content.arguments),
        "stages": [_plain_stage(stage) for stage in content.stages],
    }


def _plain_stage(stage: StageContent) -> dict[str, Any]:
    """Leave out what is empty: a stage has many fields."""
    fields = {name: getattr(stage, name) for name in STAGE_FIELDS}
    fields |= {"services": list(stage.services), "arguments": dict(stage.arguments)}
    return {"kind": stage.kind} | {name: value for name, value in fields.items() if value not in ("", None, [], {})}


def read_plain(data: Any, workflow: Workflow) -> tuple[RequestContent, Problems]:
    """Return what the data holds, as far as it can be read, and every fault of what cannot."""
    reader = _Reader()
    return reader.request(data, workflow), reader.problems


class _Reader(Reader):
    """Reads a request."""

    def request(self, data: Any, workflow: Workflow) -> RequestContent:
        values = self.mapping(data, "", {*FIELDS, "arguments", "stages", *APART})
        fields: dict[str, Any] = {
            name: self._text(values[name], name)
            for name in FIELDS
            if name != "deadline" and values.get(name) is not None
        }
        return RequestContent(
            workflow=workflow,
            deadline=self._day(values.get("deadline"), "deadline"),
            arguments=self._arguments(values.get("arguments"), "arguments", workflow),
            stages=self._stages(values.get("stages"), workflow),
            **fields,
        )

    def _stages(self, data: Any, workflow: Workflow) -> tuple[StageContent, ...]:
        items = self.sequence(data, "stages")
        if len(items) > MAX_STAGES:
            self.fault("stages", f"At most {MAX_STAGES} stages; this has {len(items):,}. Split the request.")
        return tuple(
            self._stage(item, f"stages.{position}", workflow) for position, item in enumerate(items[:MAX_STAGES])
        )

    def _stage(self, data: Any, path: str, workflow: Workflow) -> StageContent:
        values = self.mapping(data, path, {*STAGE_FIELDS, "kind", "services", "arguments"})
        given = {name: value for name, value in values.items() if value is not None}
        kind = self._text(given.get("kind", workflow.stages[0].key), f"{path}.kind")
        fields: dict[str, Any] = {
            name: self._number(given[name], f"{path}.{name}", CORE[name])
            if name in NUMBERS
            else self._text(given[name], f"{path}.{name}")
            for name in STAGE_FIELDS
            if name in given
        }
        return StageContent(
            kind=kind,
            services=tuple(
                self._text(slug, f"{path}.services")
                for slug in self.sequence(given.get("services"), f"{path}.services")
            ),
            arguments=self._arguments(given.get("arguments"), f"{path}.arguments", workflow.stage(kind)),
            **fields,
        )

    def _arguments(self, data: Any, path: str, declared: Workflow | StageType) -> dict[str, Value]:
        given = self.mapping({} if data is None else data, path, None)
        found: dict[str, Value] = {}
        for name, value in given.items():
            argument, here = declared.argument(name), f"{path}.{name[:40]}"
            if argument is None or (name in CORE and isinstance(declared, StageType)):
                self.fault(here, "There is no such argument.")
            elif value is not None and (read := self._value(value, here, argument)) is not None:
                found[name] = read
        return found

    def _value(self, value: Any, path: str, argument: Argument) -> Value | None:
        """Read one value; text of another type is read as a person types it."""
        if isinstance(value, date) and not isinstance(value, datetime):
            value = value.isoformat()
        texts = value if isinstance(value, list) else [value]
        if any(isinstance(text, str) and _NOT_TEXT.search(text) for text in texts):
            self.fault(path, "Text cannot hold the character NUL, nor half of a surrogate pair.")
            return None
        try:
            if isinstance(value, str) and argument.kind.holds is not str:
                return argument.parse(value)
        except ValueError as error:
            self.fault(path, str(error))
            return None
        if problem := argument.problem(value):
            self.fault(path, problem)
            return None
        read: Value = value
        return read

    def _number(self, value: Any, path: str, argument: Argument) -> int | None:
        if isinstance(value, int) and not isinstance(value, bool):
            return value
        try:
            read = argument.kind.parse(value) if isinstance(value, str) else None
        except ValueError as error:
            self.fault(path, str(error))
            return None
        if not isinstance(read, int):
            self.fault(path, f"This must be {argument.kind.name}.")
            return None
        return read

    def _day(self, value: Any, path: str) -> date | None:
        if value is None or (isinstance(value, date) and not isinstance(value, datetime)):
            return value
        try:
            return date.fromisoformat(value)
        except (TypeError, ValueError):
            self.fault(path, "Write a day as 2026-12-31.")
            return None

    def _text(self, value: Any, path: str) -> str:
        if not isinstance(value, str):
            self.fault(path, _TEXT)
            return ""
        if _NOT_TEXT.search(value):
            self.fault(path, "Text cannot hold the character NUL, nor half of a surrogate pair.")
            return ""
        return value
