"""One typed argument of a request or a stage: how it is typed, checked, written and described."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import date
from decimal import Decimal, InvalidOperation
from itertools import pairwise
from typing import Any

import re2

from apps.production.domain.content import quantities

#: What an argument holds, as JSON has it: text, number, yes or no, or lines of text.
Value = str | int | float | bool | list[str]

MAX_LINES = 10_000
MAX_LINE = 300
MAX_TEXT = 10_000
MAX_NUMBER = 10**15


@dataclass(frozen=True)
class ArgumentType:
    """One kind of argument. `parse` reads what a person typed and raises `ValueError` with what to write."""

    name: str
    parse: Callable[[str], Value]
    write: Callable[[Any], str]
    holds: type | tuple[type, ...]
    schema: Mapping[str, Any]
    widget: str = "line"


@dataclass(frozen=True, kw_only=True)
class Argument:
    """One argument as a workflow type declares it. `minimum` and `maximum` hold for numbers, in the type's unit."""

    name: str
    type: str = "line"
    label: str = ""
    help: str = ""
    unit: str = ""
    default: Value | None = None
    required: bool = False
    missing: str = ""
    minimum: float | None = None
    maximum: float | None = None
    pattern: str = ""
    choices: tuple[str, ...] = ()
    editable_in: frozenset[str] = field(default=frozenset())

    @property
    def title(self) -> str:
        return self.label or self.name.replace("_", " ").capitalize()

    @property
    def kind(self) -> ArgumentType:
        return TYPES[self.type]

    def parse(self, text: str) -> Value | None:
        """Read what a person typed; empty is None. Raises `ValueError` with what to write."""
        text = text.strip()
        if not text:
            return None
        value = self.kind.parse(text)
        if problem := self.problem(value):
            raise ValueError(problem)
        return value

    def write(self, value: Value | None) -> str:
        """Write a value so that `parse` reads the same."""
        return "" if value is None else self.kind.write(value)

    def problem(self, value: Any) -> str:
        """Return what is wrong with a value that is given, or an empty text."""
        kind = self.kind
        if not isinstance(value, kind.holds) or (isinstance(value, bool) and kind.holds is not bool):
            return f"This must be {kind.name}: {kind.schema['description']}"
        match value:
            case list():
                return _problem_of_lines(value)
            case str():
                return self._problem_of_text(value)
            case int() | float() if not isinstance(value, bool):
                return self._problem_of_number(value)
        return ""

    def _problem_of_text(self, value: str) -> str:
        limit = MAX_TEXT if self.type == "text" else MAX_LINE
        if len(value) > limit:
            return f"At most {limit:,} characters; this has {len(value):,}."
        if "\0" in value or ("\n" in value and self.type != "text"):
            return "This takes text of one line." if "\n" in value else "Text cannot hold the character NUL."
        if self.choices and value not in self.choices:
            return f"Choose one of: {', '.join(self.choices)}."
        if self.pattern and not re2.fullmatch(self.pattern, value):
            return f"This does not have the form of {self.title.lower()}. {self.help}".strip()
        return self._problem_of_form(value) if self.type in {"date", "runs"} else ""

    def _problem_of_form(self, value: str) -> str:
        try:
            self.kind.parse(value)
        except ValueError as error:
            return str(error)
        return ""

    def _problem_of_number(self, value: float) -> str:
        if not -MAX_NUMBER <= value <= MAX_NUMBER:
            return f"At most {MAX_NUMBER:,} either way."
        if value < 0 and self.type != "number":
            return "Must not be less than zero."
        if self.minimum is not None and value < self.minimum:
            return f"At least {self.write(_like(self.minimum, value))}."
        if self.maximum is not None and value > self.maximum:
            return f"At most {self.write(_like(self.maximum, value))}."
        return ""

    def schema(self) -> dict[str, Any]:
        """Return the JSON Schema of a value."""
        found: dict[str, Any] = {"title": self.title, **self.kind.schema}
        if self.help:
            found["description"] = f"{self.help} ({found['description']})"
        more = {"default": self.default, "minimum": self.minimum, "maximum": self.maximum, "pattern": self.pattern}
        found |= {name: value for name, value in more.items() if value not in (None, "")}
        return found | ({"enum": list(self.choices)} if self.choices else {})


def runs_in(text: str) -> list[tuple[int, int]]:
    """Return the ranges of `1-100, 105` as first and last, in order and without overlap. Raises `ValueError`."""
    ranges = []
    for part in text.split(","):
        found = re.fullmatch(r"\s*(\d{1,12})(?:\s*-\s*(\d{1,12}))?\s*", part, re.ASCII)
        if found is None:
            raise ValueError("Write runs as 1-100, 105.")
        first, last = int(found[1]), int(found[2] or found[1])
        if last < first:
            raise ValueError(f"{first}-{last} ends before it begins.")
        ranges.append((first, last))
    ranges.sort()
    for (_, last), (first, _) in pairwise(ranges):
        if first <= last:
            raise ValueError(f"Run {first} is named twice.")
    return ranges


def _runs(text: str) -> str:
    return ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in runs_in(text))


def _number(text: str) -> float:
    try:
        number = Decimal(text)
    except InvalidOperation:
        raise ValueError("Write a number, such as 0.25.") from None
    if not number.is_finite() or abs(number) > MAX_NUMBER:
        raise ValueError("Write a number, such as 0.25.")
    return float(number)


def _yes_no(text: str) -> bool:
    if text.lower() not in {"yes", "no", "true", "false", "on"}:
        raise ValueError("Write yes or no.")
    return text.lower() in {"yes", "true", "on"}


def _day(text: str) -> str:
    try:
        return date.fromisoformat(text).isoformat()
    except ValueError:
        raise ValueError("Write a day as 2026-12-31.") from None


def _lines(text: str) -> Value:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if problem := _problem_of_lines(lines):
        raise ValueError(problem)
    return lines


def _problem_of_lines(lines: list[Any]) -> str:
    if len(lines) > MAX_LINES:
        return f"At most {MAX_LINES:,} lines; this has {len(lines):,}."
    if not all(isinstance(line, str) and line and len(line) <= MAX_LINE and "\0" not in line for line in lines):
        return f"Each line is text of at most {MAX_LINE} characters."
    return ""


def _like(limit: float, value: float) -> float:
    return int(limit) if isinstance(value, int) else limit


def _text(name: str, description: str, widget: str = "line", **more: Any) -> ArgumentType:
    schema = {"type": "string", "description": description, **more}
    return ArgumentType(name, str, str, str, schema, widget)


_INTEGER = {"type": "integer"}

TYPES: Mapping[str, ArgumentType] = {
    "line": _text("text", "A line of text."),
    "text": _text("text", "Text of any lines.", "lines"),
    "dataset": _text("a dataset", "The name of a dataset or definition."),
    "choice": _text("a choice", "One of the choices.", "choice"),
    "date": ArgumentType(
        "a day", _day, str, str, {"type": "string", "format": "date", "description": "A day: 2026-12-31."}, "date"
    ),
    "runs": ArgumentType("runs", _runs, str, str, {"type": "string", "description": "Runs: 1-100, 105."}),
    "count": ArgumentType(
        "a whole number",
        quantities.parse_count,
        quantities.format_count,
        int,
        {**_INTEGER, "description": "A whole number; in the form also 20 M."},
    ),
    "size": ArgumentType(
        "a size",
        quantities.parse_size,
        quantities.format_size,
        int,
        {**_INTEGER, "description": "Bytes; in the form 4 GB."},
    ),
    "duration": ArgumentType(
        "a time",
        quantities.parse_duration,
        quantities.format_duration,
        int,
        {**_INTEGER, "description": "Seconds; in the form 8 h."},
    ),
    "number": ArgumentType(
        "a number", _number, lambda value: f"{value:.15g}", (int, float), {"type": "number", "description": "A number."}
    ),
    "yes_no": ArgumentType(
        "yes or no",
        _yes_no,
        lambda value: "yes" if value else "no",
        bool,
        {"type": "boolean", "description": "Yes or no."},
        "yes_no",
    ),
    "lines": ArgumentType(
        "lines",
        _lines,
        "\n".join,
        list,
        {"type": "array", "items": {"type": "string"}, "description": "One on each line."},
        "lines",
    ),
    "services": ArgumentType(
        "services",
        _lines,
        "\n".join,
        list,
        {"type": "array", "items": {"type": "string"}, "description": "Slugs of services."},
        "services",
    ),
}
