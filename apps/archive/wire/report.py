"""The report of a capture process: written with its heartbeat, read by the health page and the metrics."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from itertools import islice
from typing import Any, Self

MOST_NAMED = 20
_LONGEST = 500


@dataclass(frozen=True, slots=True)
class SinkReport:
    """How far one sink is behind, and why. `refused` counts all its dead letters, `last_refused` names the newest."""

    behind: int = 0
    lag_seconds: float = 0.0
    written: int = 0
    last_error: str = ""
    retry_seconds: float = 0.0  # until the next attempt, where it is away
    refused: int = 0
    last_refused: tuple[tuple[str, str], ...] = ()  # job id, reason
    retired: bool = False  # the journal keeps jobs for it, and it is no longer among the sinks


@dataclass(frozen=True, slots=True)
class CaptureReport:
    """Counts are since its start. `unreadable` are paths with reasons."""

    captured: int = 0
    waiting: int = 0
    last_error: str = ""
    unreadable_count: int = 0
    unreadable: Mapping[str, str] = field(default_factory=dict)
    incomplete: Sequence[str] = ()
    sinks: Mapping[str, SinkReport] = field(default_factory=dict)

    def as_detail(self) -> dict[str, Any]:
        """Return it as JSON has it, with the first paths only."""
        return asdict(self) | {
            "unreadable": dict(islice(self.unreadable.items(), MOST_NAMED)),
            "incomplete": list(self.incomplete[:MOST_NAMED]),
        }

    @classmethod
    def from_detail(cls, detail: Any) -> Self:
        """Read untrusted JSON: what does not fit is left out."""
        report = cls(**_values(cls, detail))
        return replace(report, unreadable_count=max(report.unreadable_count, len(report.unreadable)))


def printable(value: object) -> str:
    """Escape control characters and bytes that are no text: names in a spool may hold anything."""
    return str(value).encode("unicode_escape", "backslashreplace").decode("ascii")


def _values(kind: type, detail: Any) -> dict[str, Any]:
    """Read the fields of a dataclass by their types."""
    found = detail if isinstance(detail, dict) else {}
    return {each.name: _READERS[each.type](found.get(each.name)) for each in fields(kind)}


def _number(value: Any) -> float:
    good = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1e15
    return round(value, 1) if good else 0


def _text(value: Any) -> str:
    return value[:_LONGEST] if isinstance(value, str) else ""


def _items(value: Any) -> list[tuple[str, Any]]:
    return [(_text(name), each) for name, each in islice(value.items(), MOST_NAMED)] if isinstance(value, dict) else []


def _list(value: Any) -> list[Any]:
    return value[:MOST_NAMED] if isinstance(value, list) else []


_READERS: dict[Any, Callable[[Any], Any]] = {
    int: lambda value: int(_number(value)),
    float: _number,
    str: _text,
    bool: lambda value: value is True,
    tuple[tuple[str, str], ...]: lambda value: tuple(
        (_text(pair[0]), _text(pair[1])) for pair in _list(value) if isinstance(pair, list) and len(pair) == 2
    ),
    Sequence[str]: lambda value: [_text(each) for each in _list(value)],
    Mapping[str, str]: lambda value: {name: _text(each) for name, each in _items(value)},
    Mapping[str, SinkReport]: lambda value: {
        name: SinkReport(**_values(SinkReport, each)) for name, each in _items(value)
    },
}
