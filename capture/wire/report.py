"""The status report of a capture process.

It is written with the heartbeat, and read by the health page and metrics.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from itertools import islice
from typing import Any, Self

MOST_NAMED = 20
_LONGEST = 500


@dataclass(frozen=True, slots=True)
class CaptureReport:
    """The counts of a capture process.

    `captured`, `missed` and `handed_over` are since its start; `missed` were seen in the spool, and
    deleted before they were read. `unreadable` are paths with reasons. `behind` are jobs in the
    journal that the portal lacks, `lag_seconds` is the age of the oldest; `refused` are those that
    the portal does not accept. `masking_key_id` is `Masker.key_id`; captures before 0.3 send none.
    """

    captured: int = 0
    missed: int = 0
    waiting: int = 0
    last_error: str = ""
    unreadable_count: int = 0
    unreadable: Mapping[str, str] = field(default_factory=dict)
    incomplete: Sequence[str] = ()
    behind: int = 0
    lag_seconds: float = 0.0
    handed_over: int = 0
    refused: int = 0
    why_refused: str = ""
    portal_error: str = ""
    masking_key_id: str = ""
    journal_bytes: int = 0

    def as_detail(self) -> dict[str, Any]:
        """Return the report as JSON values, with the first paths only."""
        return asdict(self) | {
            "unreadable": dict(islice(self.unreadable.items(), MOST_NAMED)),
            "incomplete": list(self.incomplete[:MOST_NAMED]),
        }

    @classmethod
    def from_detail(cls, detail: Any) -> Self:
        """Read untrusted JSON: values of another type are left out."""
        untrusted = detail if isinstance(detail, dict) else {}
        values = {}
        for column in fields(cls):
            read = _READERS[column.type]
            values[column.name] = read(untrusted.get(column.name))
        report = cls(**values)
        return replace(
            report, unreadable_count=max(report.unreadable_count, len(report.unreadable))
        )


def printable(value: object) -> str:
    """Escape control characters and bytes that are no text: names in a spool may hold anything."""
    return str(value).encode("unicode_escape", "backslashreplace").decode("ascii")


def _number(value: Any) -> float:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not 0 <= value < 1e15:
        return 0
    rounded: float = round(value, 1)
    return rounded


def _text(value: Any) -> str:
    return value[:_LONGEST] if isinstance(value, str) else ""


def _texts(value: Any) -> list[str]:
    if not isinstance(value, list):
        return []
    return [_text(text) for text in value[:MOST_NAMED]]


def _texts_by_name(value: Any) -> dict[str, str]:
    if not isinstance(value, dict):
        return {}
    return {_text(name): _text(text) for name, text in islice(value.items(), MOST_NAMED)}


_READERS: dict[Any, Callable[[Any], Any]] = {
    int: lambda value: int(_number(value)),
    float: _number,
    str: _text,
    Sequence[str]: _texts,
    Mapping[str, str]: _texts_by_name,
}
