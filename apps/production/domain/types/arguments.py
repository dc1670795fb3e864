"""Typed arguments of a request or a stage: parsing, validation, formatting and description."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal, InvalidOperation
from functools import cached_property
from itertools import pairwise
from typing import Annotated, Any, Self

import re2
from pydantic import (
    AfterValidator,
    ConfigDict,
    Field,
    SkipValidation,
    TypeAdapter,
    ValidationError,
    model_validator,
)
from pydantic.dataclasses import dataclass as validated

from apps.core.domain import quantities
from apps.production.domain.types.faults import message_of, raise_faults
from apps.production.enums import RequestState

#: The value of an argument in JSON: text, number, boolean, or lines of text.
Value = str | int | float | bool | list[str]
#: Run numbers as (first, last) pairs.
Runs = Sequence[tuple[int, int]]

_RUNS = re.compile(r"(\d{1,12})(?:\s*-\s*(\d{1,12}))?", re.ASCII)
MAX_LINES = 10_000
MAX_LINE = 300
MAX_TEXT = 10_000
MAX_NUMBER = 10**15


def _check_nul(text: str) -> str:
    if "\0" in text:
        raise ValueError("Remove the NUL character.")
    return text


Text = Annotated[str, AfterValidator(_check_nul)]
_Day = Annotated[Text, Field(json_schema_extra={"format": "date"})]
Name = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,39}$")]


@dataclass(frozen=True)
class ArgumentType:
    """A type of argument.

    `parse` reads user input, and raises `ValueError` with a message about the expected input.
    """

    name: str
    description: str
    parse: Callable[[str], Value] = str
    write: Callable[[Any], str] = str
    holds: Any = Text
    widget: str = "line"

    @cached_property
    def model(self) -> TypeAdapter[Any]:
        return TypeAdapter(self.holds, config=ConfigDict(strict=True))

    @property
    def is_text(self) -> bool:
        return self.holds in {Text, _Day}

    def problem(self, value: Any) -> str:
        """Return why a value does not have this type, or an empty text. Limits are not checked."""
        try:
            self.model.validate_python(value)
        except ValidationError as error:
            fault = error.errors()[0]
            is_bad_text = fault["type"] in {"value_error", "string_unicode"}
            if is_bad_text:
                return message_of(fault)
            return f"Enter {self.name}. {self.description}"
        return ""


def runs_in(text: str) -> Runs:
    """Return the ranges in a text such as `1-9, 15`, sorted and disjoint. Raises `ValueError`."""
    ranges = []
    for part in text.split(","):
        match = _RUNS.fullmatch(part.strip())
        if match is None:
            raise ValueError("Enter runs as 1-100, 105.")
        first = int(match[1])
        last = int(match[2] or match[1])
        if last < first:
            raise ValueError(f"{first}-{last} ends before it starts.")
        ranges.append((first, last))
    ranges.sort()
    for (_, last), (first, _) in pairwise(ranges):
        if first <= last:
            raise ValueError(f"Run {first} is listed twice.")
    return ranges


def intersect_runs(these: Runs, those: Runs) -> Runs:
    """Return the ranges that both have in common."""
    common = []
    for begin, end in these:
        for other_begin, other_end in those:
            first = max(begin, other_begin)
            last = min(end, other_end)
            if first <= last:
                common.append((first, last))
    return common


def runs_text(ranges: Runs) -> str:
    """Format ranges so that `runs_in` reads the same ranges."""
    return ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in ranges)


def _number(text: str) -> float:
    try:
        number = Decimal(text if len(text) <= quantities.MAX_LENGTH else "NaN")
    except InvalidOperation:
        number = Decimal("NaN")
    if not number.is_finite() or abs(number) > MAX_NUMBER:
        raise ValueError("Enter a number, such as 0.25.")
    return float(number)


def _yes_no(text: str) -> bool:
    if text.lower() not in {"yes", "no", "true", "false", "on"}:
        raise ValueError("Enter yes or no.")
    return text.lower() in {"yes", "true", "on"}


def _day(text: str) -> str:
    try:
        return date.fromisoformat(text).isoformat()
    except ValueError:
        raise ValueError("Enter a date as 2026-12-31.") from None


def _lines(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if line.strip()]


_Lines = list[Text]
_COUNT = (quantities.parse_count, quantities.format_count, int)
_SIZE = (quantities.parse_size, quantities.format_size, int)
_DURATION = (quantities.parse_duration, quantities.format_duration, int)
TYPES: Mapping[str, ArgumentType] = {
    "line": ArgumentType("text", "One line of text."),
    "text": ArgumentType("text", "One or more lines of text.", widget="lines"),
    "dataset": ArgumentType("a dataset", "Name of a dataset or dataset definition."),
    "choice": ArgumentType("a choice", "One of the choices.", widget="choice"),
    "date": ArgumentType("a date", "Format: 2026-12-31.", _day, holds=_Day, widget="date"),
    "runs": ArgumentType("runs", "Format: 1-100, 105.", lambda text: runs_text(runs_in(text))),
    "count": ArgumentType("a whole number", "Integer, or text such as 20 M.", *_COUNT),
    "size": ArgumentType("a size", "In bytes, or text such as 4 GB.", *_SIZE),
    "duration": ArgumentType("a duration", "In seconds, or text such as 8 h.", *_DURATION),
    "number": ArgumentType(
        "a number", "Integer or decimal number.", _number, "{:.15g}".format, float
    ),
    "yes_no": ArgumentType(
        "yes or no", "Boolean.", _yes_no, {True: "yes", False: "no"}.__getitem__, bool, "yes_no"
    ),
    "lines": ArgumentType("lines", "One value per line.", _lines, "\n".join, _Lines, "lines"),
    "services": ArgumentType(
        "services", "Slugs of services.", _lines, "\n".join, _Lines, "services"
    ),
}


@validated(frozen=True, kw_only=True, config=ConfigDict(extra="forbid"))
class Argument:
    """An argument, as declared by a workflow type.

    `minimum` and `maximum` apply to numbers, in the unit of the type; for text, `maximum` is its
    length in characters. The form asks for a `shared` argument of stages once for all of them; a
    stage can override it.
    """

    name: Name
    type: str = "line"
    label: str = ""
    help: str = ""
    unit: str = ""
    default: SkipValidation[Value | None] = None
    required: bool = False
    missing: str = ""
    minimum: int | float | None = None
    maximum: int | float | None = None
    pattern: str = ""
    choices: tuple[str, ...] = ()
    shared: bool = False
    editable_in: frozenset[str] = frozenset()

    @model_validator(mode="after")
    def _is_right(self) -> Self:
        raise_faults(self._faults())
        return self

    def _faults(self) -> Iterator[tuple[tuple[str], str]]:
        if self.type not in TYPES:
            yield ("type",), f"There is no type {self.type!r}. Choose one of: {', '.join(TYPES)}."
            return
        if (self.type == "choice") != bool(self.choices):
            yield ("choices",), "The type “choice” requires choices; other types do not take them."
        if unknown := sorted(self.editable_in.difference(RequestState.values)):
            yield ("editable_in",), f"There is no state {unknown[0]!r}."
        options = re2.Options()
        options.log_errors = False
        try:
            re2.compile(self.pattern, options)
        except re2.error as error:
            yield (
                ("pattern",),
                f"Invalid regular expression: {error.args[0].decode(errors='replace')}.",
            )
        else:
            if self.default is not None and (problem := self.problem(self.default)):
                yield ("default",), problem

    @property
    def title(self) -> str:
        return self.label or self.name.replace("_", " ").capitalize()

    @property
    def kind(self) -> ArgumentType:
        return TYPES[self.type]

    @property
    def most(self) -> int:
        """The largest number, or the maximum length of text."""
        if self.type == "text":
            by_type = MAX_TEXT
        elif self.kind.is_text:
            by_type = MAX_LINE
        else:
            by_type = MAX_NUMBER
        return int(self.maximum or by_type)

    def parse(self, text: str) -> Value | None:
        """Parse user input. Empty input is None. Raises `ValueError` with the expected input."""
        text = text.strip()
        if self.kind.is_text and (problem := self.excess(text)):
            raise ValueError(problem)
        return self._checked(self.kind.parse(text)) if text else None

    def read(self, value: Any) -> Value | None:
        """Read a JSON value; types other than text also accept user input. Raises `ValueError`."""
        if isinstance(value, str) and not self.kind.is_text:
            return self.parse(value)
        return self._checked(value)

    def _checked(self, value: Any) -> Value:
        if problem := self.problem(value):
            raise ValueError(problem)
        checked: Value = value
        return checked

    def write(self, value: Value | None) -> str:
        """Format a value so that `parse` reads the same value.

        Seeds are written without separators, because they are not amounts.
        """
        if isinstance(value, int) and self.name.endswith("seed"):
            return str(value)
        return "" if value is None else self.kind.write(value)

    def problem(self, value: Any) -> str:
        """Return what is wrong with a value, or an empty text."""
        problem = self.kind.problem(value) or self.excess(value)
        if isinstance(value, str) and not problem:
            return self._problem_of_text(value)
        return problem

    def excess(self, value: Any) -> str:
        """Return the limit that a value exceeds as a message, or an empty text."""
        match value:
            case list() if len(value) > MAX_LINES:
                return f"Enter at most {MAX_LINES:,} lines. This has {len(value):,}."
            case list() if not all(line and len(line) <= MAX_LINE for line in value):
                return f"Enter at most {MAX_LINE} characters per line, and no empty lines."
            case str() if len(value) > self.most:
                return f"Use at most {self.most:,} characters. This text has {len(value):,}."
            case int() | float() if not isinstance(value, bool):
                return self._excess_of_number(value)
        return ""

    def _excess_of_number(self, value: float) -> str:
        if self.type == "number" and not -MAX_NUMBER <= value <= MAX_NUMBER:
            return f"Enter a number between -{MAX_NUMBER:,} and {MAX_NUMBER:,}."
        if value <= 0 and self.minimum == 1:
            return "Enter a number greater than zero."
        if value < 0 and self.type != "number":
            return "Enter zero or a positive number."
        if self.minimum is not None and value < self.minimum:
            return f"Enter at least {self.write(self.minimum)}."
        most = MAX_NUMBER if self.maximum is None else self.maximum
        if value > most:
            return f"Enter at most {self.write(most)}."
        return ""

    def _problem_of_text(self, value: str) -> str:
        if "\n" in value and self.type != "text":
            return "Enter a single line of text."
        if self.choices and value not in self.choices:
            return f"Choose one of: {', '.join(self.choices)}."
        if self.pattern and not re2.fullmatch(self.pattern, value):
            return f"Invalid {self.title.lower()}. {self.help}".strip()
        try:
            self.kind.parse(value)
        except ValueError as error:
            return str(error)
        return ""

    def schema(self) -> dict[str, Any]:
        kind = self.kind
        if kind.is_text:
            bounds = {"maxLength": self.maximum}
        else:
            bounds = {"minimum": self.minimum, "maximum": self.maximum}
        more = {
            "default": self.default,
            **bounds,
            "pattern": self.pattern,
            "enum": list(self.choices),
        }
        if self.help:
            description = f"{self.help} ({kind.description})"
        else:
            description = kind.description
        schema = {"title": self.title, **kind.model.json_schema(), "description": description}
        return schema | {name: value for name, value in more.items() if value not in (None, "", [])}
