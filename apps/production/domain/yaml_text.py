"""YAML as plain data, with the line of each value: names, lists, text, numbers, true, false and null.

Built in one pass of what the parser finds, so that nothing too large or too deep is ever built. Values are those of
JSON (the core schema of YAML 1.2): there are no tags, no dates, no `yes` for true, no `08:00` for 480.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import yaml

MAX_BYTES = 2_000_000
_MAX_DEPTH = 8
_MAX_VALUES = 300_000
_LONGEST_NAME = 40
_WORDS = {
    form: value
    for word, value in {"true": True, "false": False, "null": None, "~": None, "": None}.items()
    for form in (word, word.capitalize(), word.upper())
}
_WHOLE = re.compile(r"[-+]?[0-9]{1,30}\Z")
NUMBER = re.compile(r"[-+]?(\.[0-9]{1,30}|[0-9]{1,30}(\.[0-9]{0,30})?)([eE][-+]?[0-9]{1,3})?\Z")
_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass(frozen=True)
class Fault:
    """What is wrong with a text, and in which line; 0 for the text as a whole."""

    line: int
    message: str
    path: str = ""

    def __str__(self) -> str:
        return f"Line {self.line}: {self.message}" if self.line else self.message


@dataclass(frozen=True)
class Parsed:
    """What a text holds, the line of each field by its path, and what could not be read."""

    data: Any
    lines: Mapping[str, int]
    faults: list[Fault]

    def line(self, path: str) -> int:
        """Return the line of a field, or of the nearest that holds it."""
        while path not in self.lines and path:
            path = path.rpartition(".")[0]
        return self.lines.get(path, 0)


def parse_yaml(text: str, *, longest: int = MAX_BYTES, references: bool = False) -> Parsed:
    """Read a text as far as it goes; `references` takes `&name` and `*name`. The data is None where it ends early."""
    if len(text.encode(errors="replace")) > longest:
        return Parsed(None, {}, [Fault(0, f"At most {longest:,} bytes.")])
    try:
        builder = _Builder(text, references=references)
        return Parsed(builder.document(), builder.lines, builder.faults)
    except _TooMuch as error:
        return Parsed(None, {}, [error.args[0]])
    except (yaml.YAMLError, ValueError) as error:
        mark = getattr(error, "problem_mark", None)
        what = getattr(error, "problem", None) or getattr(error, "reason", None) or str(error)
        last = text.count("\n", 0, len(text.rstrip())) + 1  # a parser finds at the end what lacks above it
        line = min(mark.line + 1, last) if mark else 0
        return Parsed(None, {}, [Fault(line, f"This is no YAML: {' '.join(str(what).split())[:200]}.")])


class _TooMuch(Exception):
    """The text is too large or too deep to go on; the argument is the fault."""


class _Builder:
    """Builds data of the parser's events; `lines` has the line of each value by its path."""

    def __init__(self, text: str, *, references: bool) -> None:
        self._events: Iterator[Any] = yaml.parse(text, Loader=_Loader)
        self._references = references
        self._named: dict[str, tuple[Any, int]] = {}
        self._count = 0
        self.lines: dict[str, int] = {}
        self.faults: list[Fault] = []

    def document(self) -> Any:
        """Return what the only document holds; an empty one is a mapping of nothing."""
        begins = (event for event in self._events if isinstance(event, yaml.DocumentStartEvent))
        found = [self._value(next(self._events), "", 0) for _ in begins]
        if len(found) > 1:
            self.faults.append(Fault(1, "This holds several documents, and only one is taken."))
        return {} if found in ([], [None]) else found[0]

    def _value(self, event: Any, path: str, depth: int) -> Any:
        line, before = event.start_mark.line + 1, self._count
        self._count += 1
        self.lines.setdefault(path, line)
        if depth > _MAX_DEPTH:
            raise _TooMuch(Fault(line, f"This is nested deeper than {_MAX_DEPTH} levels."))
        match event:
            case yaml.AliasEvent():
                value, size = self._reference(str(event.anchor), line, path)
                self._count += size
            case yaml.SequenceStartEvent():
                value = list(self._items(path, depth))
            case yaml.MappingStartEvent():
                value = dict(self._pairs(path, depth))
            case _:
                value = self._scalar(event, line, path)
        if self._count > _MAX_VALUES:
            raise _TooMuch(Fault(line, f"This holds more than {_MAX_VALUES:,} values."))
        if event.anchor:
            self._named[event.anchor] = value, self._count - before
        return value

    def _reference(self, name: str, line: int, path: str) -> tuple[Any, int]:
        """Return what a name stands for, and how many values that are."""
        if not self._references:
            self.faults.append(Fault(line, "References (&name, *name) are not taken: write the value out.", path))
        elif name not in self._named:
            self.faults.append(Fault(line, f"Nothing above has the name &{name[:_LONGEST_NAME]}.", path))
        return self._named.get(name, (None, 0)) if self._references else (None, 0)

    def _items(self, path: str, depth: int) -> Iterator[Any]:
        position = 0
        while not isinstance(event := next(self._events), yaml.SequenceEndEvent):
            yield self._value(event, f"{path}.{position}", depth + 1)
            position += 1

    def _pairs(self, path: str, depth: int) -> Iterator[tuple[str, Any]]:
        seen: set[str] = set()
        while not isinstance(event := next(self._events), yaml.MappingEndEvent):
            line, here, fault = event.start_mark.line + 1, path, ""
            name = self._value(event, path, depth + 1)
            if not isinstance(name, str):
                fault = "A name here must be plain text."
            elif name in seen:
                fault = f"“{name[:_LONGEST_NAME]}” is given twice."
            else:
                here = f"{path}.{name[:_LONGEST_NAME]}" if path else name[:_LONGEST_NAME]
                self.lines[here] = line
                seen.add(name)
            value = self._value(next(self._events), here, depth + 1)
            if fault:
                self.faults.append(Fault(line, fault, path))
            else:
                yield name, value

    def _scalar(self, event: Any, line: int, path: str) -> Any:
        if event.tag not in {None, "!"}:
            self.faults.append(Fault(line, "Tags (!name) are not taken: write the value alone.", path))
            return None
        if not event.implicit[0]:  # in quotes, or a block
            return event.value
        if event.value in _WORDS:
            return _WORDS[event.value]
        if _WHOLE.match(event.value):
            return int(event.value)
        return float(event.value) if NUMBER.match(event.value) else event.value
