"""The expressions of an experiment's pack that mark phases and levels in its logs."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

Level = Literal["error", "warning", "debug"]
LEVELS: tuple[Level, ...] = ("error", "warning", "debug")


@dataclass(frozen=True, slots=True)
class Markers:
    """Expressions that mark lines.

    Groups of a phase: `name` in a start, `at` in both, `wall` (seconds) in an end.
    """

    starts: tuple[str, ...] = ()
    ends: tuple[str, ...] = ()
    levels: tuple[tuple[Level, str], ...] = ()


NO_MARKERS = Markers()


def markers_in(stored: Mapping[str, Any]) -> Markers:
    """Return the markers in the stored form of a pack."""
    phases = stored.get("phases", ())
    levels = stored.get("levels", ())
    return Markers(
        starts=tuple(phase["start"] for phase in phases),
        ends=tuple(phase["end"] for phase in phases if phase.get("end")),
        levels=tuple((row["level"], row["regex"]) for row in levels),
    )
