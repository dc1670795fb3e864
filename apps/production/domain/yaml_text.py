"""Reading YAML as plain data, with the line of each value, and writing what is read back the same.

Data is built in one pass over the parser's events, which stops at data that is too large or too
deep. Only JSON's values are allowed: no tags, references, dates or merge keys, no `yes` for true,
no `08:00` for 480.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import yaml

MAX_BYTES = 2_000_000
_MAX_DEPTH = 8
_MAX_VALUES = 300_000
_MAX_FAULTS = 1_000
_LONGEST_NAME = 40
_WORDS: dict[str, bool | None] = {"~": None, "": None}
_WORDS |= dict.fromkeys(("true", "True", "TRUE"), True)
_WORDS |= dict.fromkeys(("false", "False", "FALSE"), False)
_WORDS |= dict.fromkeys(("null", "Null", "NULL"))
_WHOLE = re.compile(r"[-+]?[0-9]{1,30}\Z")
NUMBER = re.compile(r"\A[-+]?(\.[0-9]{1,30}|[0-9]{1,30}(\.[0-9]{0,30})?)([eE][-+]?[0-9]{1,3})?\Z")
_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
#: PyYAML writes the first of these so that it is read back as a blank; the others end lines too.
_LINE_SEPARATORS = "\x85\u2028\u2029"


@dataclass(frozen=True)
class Fault:
    """A fault in a text, with its line; line 0 is the text as a whole."""

    line: int
    message: str
    path: str = ""

    def __str__(self) -> str:
        if not self.line:
            return self.message
        return f"Line {self.line}: {self.message}"


@dataclass(frozen=True)
class Parsed:
    """The data of a text, the line of each field by path, and all faults."""

    data: Any
    lines: Mapping[str, int]
    faults: list[Fault]

    def line(self, path: str) -> int:
        """Return the line of a field, or of its nearest parent that has one."""
        while path not in self.lines and path:
            path = path.rpartition(".")[0]
        return self.lines.get(path, 0)


def parse_yaml(text: str, *, longest: int = MAX_BYTES) -> Parsed:
    """Read a text. The data is None if reading stopped early."""
    if len(text.encode(errors="replace")) > longest:
        return Parsed(None, {}, [Fault(0, f"Use at most {longest:,} bytes.")])
    try:
        builder = _Builder(text)
        return Parsed(builder.document(), builder.lines, builder.faults)
    except _TooMuch as error:
        return Parsed(None, {}, [error.args[0]])
    except (yaml.YAMLError, ValueError) as error:
        mark = getattr(error, "problem_mark", None)
        what = getattr(error, "problem", None) or getattr(error, "reason", None) or str(error)
        # The parser reports missing parts at the end of the text.
        last = text.count("\n", 0, len(text.rstrip())) + 1
        line = min(mark.line + 1, last) if mark else 0
        return Parsed(
            None, {}, [Fault(line, f"Invalid YAML: {' '.join(str(what).split())[:200]}.")]
        )


class Dumper(yaml.SafeDumper):
    """PyYAML's writer, except for text that `parse_yaml` would not read back the same."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _represent_text(dumper: Dumper, text: str) -> yaml.Node:
    """Write text as PyYAML does; line separators with escapes."""
    style = '"' if any(separator in text for separator in _LINE_SEPARATORS) else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


def quote_numbers(dumper: type[Any]) -> None:
    """Let a dumper quote texts that `parse_yaml` reads as numbers; PyYAML knows fewer of them."""
    dumper.add_implicit_resolver("tag:yaml.org,2002:float", NUMBER, list("-+.0123456789"))


Dumper.add_representer(str, _represent_text)
quote_numbers(Dumper)


def write_yaml(data: Any, *, width: int, dumper: type[Any] = Dumper) -> str:
    """Return data as YAML that `parse_yaml` reads back; references are written out."""
    return yaml.dump(data, Dumper=dumper, sort_keys=False, allow_unicode=True, width=width)


class _TooMuch(Exception):
    """The text is too large or too deep. The argument is the fault."""


class _Builder:
    """Build data from the parser's events. `lines` has the line of each value by path."""

    def __init__(self, text: str) -> None:
        self._events: Iterator[Any] = yaml.parse(text, Loader=_Loader)
        self._count = 0
        self.lines: dict[str, int] = {}
        self.faults: list[Fault] = []

    def document(self) -> Any:
        """Return the data of the only document. An empty document is an empty mapping."""
        documents: list[Any] = []
        for event in self._events:
            if isinstance(event, yaml.DocumentStartEvent):
                if documents:
                    raise _TooMuch(Fault(0, "The text has several documents. Keep only one."))
                documents.append(self._value(next(self._events), "", 0))
        return documents[0] if documents and documents[0] is not None else {}

    def _value(self, event: Any, path: str, depth: int) -> Any:
        line = event.start_mark.line + 1
        self._count += 1
        self.lines.setdefault(path, line)
        if depth > _MAX_DEPTH:
            raise _TooMuch(Fault(line, f"The text is nested deeper than {_MAX_DEPTH} levels."))
        match event:
            case yaml.AliasEvent():
                value: Any = None
            case yaml.SequenceStartEvent():
                value = []
                while not isinstance(item := next(self._events), yaml.SequenceEndEvent):
                    value.append(self._value(item, f"{path}.{len(value)}", depth + 1))
            case yaml.MappingStartEvent():
                value = dict(self._pairs(path, depth))
            case _:
                value = self._scalar(event, line, path)
        if event.anchor:
            message = "References (&name, *name) are not supported. Write out the value."
            self.faults.append(Fault(line, message, path))
        if self._count > _MAX_VALUES:
            raise _TooMuch(Fault(line, f"The text has more than {_MAX_VALUES:,} values."))
        if len(self.faults) > _MAX_FAULTS:
            raise _TooMuch(Fault(line, f"The text has more than {_MAX_FAULTS:,} faults."))
        return value

    def _pairs(self, path: str, depth: int) -> Iterator[tuple[str, Any]]:
        seen: set[str] = set()
        while not isinstance(event := next(self._events), yaml.MappingEndEvent):
            line = event.start_mark.line + 1
            here = path
            fault = ""
            name = self._value(event, path, depth + 1)
            if not isinstance(name, str):
                fault = "Names must be plain text."
            elif name in seen:
                fault = f"“{name[:_LONGEST_NAME]}” appears twice."
            else:
                if path:
                    here = f"{path}.{name[:_LONGEST_NAME]}"
                else:
                    here = name[:_LONGEST_NAME]
                self.lines[here] = line
                seen.add(name)
            value = self._value(next(self._events), here, depth + 1)
            if fault:
                self.faults.append(Fault(line, fault, path))
            else:
                yield name, value

    def _scalar(self, event: Any, line: int, path: str) -> Any:
        if event.tag not in {None, "!"}:
            self.faults.append(
                Fault(line, "Tags (!name) are not supported. Write only the value.", path)
            )
            return None
        if not event.implicit[0]:  # quoted text, or a block
            return event.value
        if event.value in _WORDS:
            return _WORDS[event.value]
        if _WHOLE.match(event.value):
            return int(event.value)
        return float(event.value) if NUMBER.match(event.value) else event.value
