"""How an experiment marks phases and levels in its logs: expressions of its pack, compiled by RE2."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import re2

from apps.diagnosis.engine.catalogue import compile_pattern

Level = Literal["error", "warning", "debug"]
LEVELS: tuple[Level, ...] = ("error", "warning", "debug")


@dataclass(frozen=True, slots=True)
class Markers:
    """Expressions of lines. Groups of a phase: `name` of a start, `at` of both, `wall` (seconds) of an end."""

    starts: tuple[re2._Regexp, ...] = ()
    ends: tuple[re2._Regexp, ...] = ()
    levels: tuple[tuple[Level, re2._Regexp], ...] = ()


NO_MARKERS = Markers()


def compiled(markers: Mapping[str, Any]) -> Markers:
    """Compile the phases and levels of a pack, which was checked before."""
    phases, levels = markers.get("phases", ()), markers.get("levels", ())
    return Markers(
        starts=tuple(compile_pattern(phase["start"]) for phase in phases),
        ends=tuple(compile_pattern(phase["end"]) for phase in phases if phase.get("end")),
        levels=tuple((row["level"], compile_pattern(row["regex"])) for row in levels),
    )
