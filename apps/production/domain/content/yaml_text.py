"""Requests as YAML: written one-to-one, read with every fault at its line, whatever the text holds."""

from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from apps.production.domain.content.model import RequestContent
from apps.production.domain.content.plain import plain
from apps.production.domain.types.arguments import MAX_LINES
from apps.production.limits import MAX_STAGES

MAX_BYTES = 2_000_000
_MAX_DEPTH = 8
_MAX_VALUES = 300_000
_DEEP = f"This is nested deeper than {_MAX_DEPTH} levels; a request never is."
_MANY = f"This holds more than {_MAX_VALUES:,} values; a request never does."
_ALIAS = "References (&name, *name) are not taken: write the value out."
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


class _Dumper(yaml.SafeDumper):
    """Writes text of several lines as such, and no references."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _represent_text(dumper: _Dumper, text: str) -> yaml.Node:
    """Write text so that it comes back the same: lines as a block where they are plain, else with escapes."""
    plain_lines = text.isascii() and text == text.strip() and text.replace("\n", "").isprintable()
    style = None if text.isprintable() else "|" if plain_lines else '"'
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _represent_text)


def write_yaml(content: RequestContent, *, experiment: str) -> str:
    """Write a request so that `parse_yaml` and `read_plain` read the same."""
    data = {"experiment": experiment, **plain(content)}
    return yaml.dump(data, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=10_000)


def parse_yaml(text: str) -> Parsed:
    """Read a text as far as it goes. Bounded in time and depth; constructs nothing but plain data."""
    if len(text.encode(errors="replace")) > MAX_BYTES:
        return Parsed(None, {}, [Fault(0, f"At most {MAX_BYTES:,} bytes: this is no request.")])
    try:
        faults = _scan(text)
        if faults:
            return Parsed(None, {}, faults)
        loader = _Loader(text)
        try:
            node = loader.get_single_node()
            return _Walk(loader).parsed(node)
        finally:
            loader.dispose()
    except (yaml.YAMLError, ValueError) as error:
        fault = _broken(error)
        last = text.count("\n", 0, len(text.rstrip())) + 1  # a parser finds at the end what lacks above it
        return Parsed(None, {}, [Fault(min(fault.line, last), fault.message)])


def _scan(text: str) -> list[Fault]:
    """Refuse what would be dangerous to build, before anything is built."""
    depth, found = 0, []
    for count, event in enumerate(yaml.parse(text, Loader=_Loader)):
        line = event.start_mark.line + 1  # type: ignore[union-attr]
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > _MAX_DEPTH:
            return [Fault(line, _DEEP)]
        if count > _MAX_VALUES:
            return [Fault(line, _MANY)]
        if isinstance(event, yaml.AliasEvent):
            found.append(Fault(line, _ALIAS))
    return found[:100]


def _broken(error: Exception) -> Fault:
    mark = getattr(error, "problem_mark", None)
    what = getattr(error, "problem", None) or getattr(error, "reason", None) or str(error)
    return Fault(mark.line + 1 if mark else 0, f"This is no YAML: {' '.join(str(what).split())[:200]}.")


class _Walk:
    """Turns nodes into data and notes the line of each."""

    def __init__(self, loader: Any) -> None:
        self._loader = loader
        self._lines: dict[str, int] = {}
        self._faults: list[Fault] = []

    def parsed(self, node: yaml.Node | None) -> Parsed:
        data = {} if node is None else self._value(node, "")
        return Parsed(data, self._lines, self._faults)

    def _value(self, node: yaml.Node, path: str) -> Any:
        self._lines.setdefault(path, node.start_mark.line + 1)
        if isinstance(node, yaml.MappingNode):
            return dict(self._pairs(node, path))
        if isinstance(node, yaml.SequenceNode):
            return self._items(node, path)
        return self._scalar(node, path)

    def _items(self, node: yaml.SequenceNode, path: str) -> list[Any]:
        most = MAX_STAGES if path == "stages" else MAX_LINES
        if len(node.value) > most:
            what = "stages" if path == "stages" else "items"
            line = node.value[most].start_mark.line + 1
            self._faults.append(Fault(line, f"At most {most:,} {what}; this has {len(node.value):,}.", path))
        return [self._value(item, f"{path}.{number}") for number, item in enumerate(node.value[:most])]

    def _pairs(self, node: yaml.MappingNode, path: str) -> Iterator[tuple[str, Any]]:
        seen: set[str] = set()
        for key, value in node.value:
            line = key.start_mark.line + 1
            name = self._scalar(key, path) if isinstance(key, yaml.ScalarNode) else None
            if not isinstance(name, str):
                self._faults.append(Fault(line, "A name here must be plain text.", path))
                continue
            if name in seen:
                self._faults.append(Fault(line, f"“{name[:40]}” is given twice.", path))
                continue
            seen.add(name)
            here = f"{path}.{name[:40]}" if path else name[:40]
            self._lines[here] = line
            yield name, self._value(value, here)

    def _scalar(self, node: yaml.Node, path: str) -> Hashable:
        try:
            value: Hashable = self._loader.construct_object(node)
        except (yaml.YAMLError, ValueError, ArithmeticError, LookupError, AttributeError, TypeError) as error:
            # The library's readers of tagged scalars (!!int, !!timestamp) fail in all these ways.
            self._faults.append(Fault(node.start_mark.line + 1, _broken(error).message, path))
            return None
        return value
