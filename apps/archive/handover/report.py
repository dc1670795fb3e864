"""What a capture process says of itself: written with its heartbeat, read by the health page and the metrics."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Self

MOST_TOLD = 20
_LONGEST = 500


@dataclass(frozen=True, slots=True)
class SinkReport:
    """How far one sink is behind, and why. `refused` counts all its dead letters, `last_refused` names the newest."""

    behind: int = 0
    lag_seconds: float = 0.0
    written: int = 0
    last_error: str = ""
    retry_seconds: float = 0.0  # until it is tried again, where it is away
    refused: int = 0
    last_refused: tuple[tuple[str, str], ...] = ()  # job id, reason
    retired: bool = False  # the journal keeps jobs for it, and it is no longer among the sinks


@dataclass(frozen=True, slots=True)
class CaptureReport:
    """Counts are since its start. Of what could not be read the first are named."""

    captured: int = 0
    waiting: int = 0
    last_error: str = ""
    unreadable_count: int = 0
    unreadable: Mapping[str, str] = field(default_factory=dict)
    incomplete: Sequence[str] = ()
    sinks: Mapping[str, SinkReport] = field(default_factory=dict)

    def as_detail(self) -> dict[str, Any]:
        """Return it as JSON has it."""
        return asdict(self)

    @classmethod
    def from_detail(cls, detail: Any) -> Self:
        """Read JSON that may be anybody's: what does not fit is left out."""
        said = detail if isinstance(detail, dict) else {}
        unreadable = _mapping(said, "unreadable")
        return cls(
            captured=_count(said, "captured"),
            waiting=_count(said, "waiting"),
            last_error=_text(said.get("last_error")),
            unreadable_count=max(_count(said, "unreadable_count"), len(unreadable)),
            unreadable={_text(path): _text(why) for path, why in [*unreadable.items()][:MOST_TOLD]},
            incomplete=[_text(path) for path in _list(said, "incomplete")[:MOST_TOLD]],
            sinks={_text(name): _sink(sink) for name, sink in [*_mapping(said, "sinks").items()][:MOST_TOLD]},
        )


def printable(value: object) -> str:
    """Names in a spool may hold anything: control characters and bytes that are no text are shown escaped."""
    return str(value).encode("unicode_escape", "backslashreplace").decode("ascii")


def _sink(detail: Any) -> SinkReport:
    said = detail if isinstance(detail, dict) else {}
    pairs = [pair for pair in _list(said, "last_refused")[:MOST_TOLD] if isinstance(pair, list) and len(pair) == 2]
    return SinkReport(
        behind=_count(said, "behind"),
        lag_seconds=_number(said, "lag_seconds"),
        written=_count(said, "written"),
        last_error=_text(said.get("last_error")),
        retry_seconds=_number(said, "retry_seconds"),
        refused=_count(said, "refused"),
        last_refused=tuple((_text(job_id), _text(why)) for job_id, why in pairs),
        retired=said.get("retired") is True,
    )


def _count(said: Mapping[str, Any], name: str) -> int:
    return int(_number(said, name))


def _number(said: Mapping[str, Any], name: str) -> float:
    value = said.get(name)
    good = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1e15
    return round(value, 1) if good and value is not None else 0


def _text(value: Any) -> str:
    return value[:_LONGEST] if isinstance(value, str) else ""


def _mapping(said: Mapping[str, Any], name: str) -> dict[str, Any]:
    value = said.get(name)
    return value if isinstance(value, dict) else {}


def _list(said: Mapping[str, Any], name: str) -> list[Any]:
    value = said.get(name)
    return value if isinstance(value, list) else []
