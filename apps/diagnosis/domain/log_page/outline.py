"""Find the phases of a log and the levels of its lines, in one pass each."""

from bisect import bisect_right
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from heapq import merge
from itertools import product
from typing import NamedTuple

import re2

from apps.core.bounded_pool import POOL, BudgetExceeded, PoolBusy
from apps.diagnosis.engine.evidence.catalogue import compile_pattern, text_of
from apps.diagnosis.engine.formats.markers import LEVELS, NO_MARKERS, Level, Markers
from apps.diagnosis.engine.formats.plain_lines import clean

MOST_PHASES = 200
#: How long the expressions of a pack may take.
PACK_SECONDS = 1.0
TOO_COSTLY = (
    "The experiment pack's phases and levels are missing here: its expressions took too long."
)
BUSY = (
    "The experiment pack's phases and levels are missing here: the portal is busy. Reload the "
    "page in a moment."
)
_CLOCK = rb"(?P<at>\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d)"
#: Phase markers of jobs: plain ones, and markers of `ops-phase`, GitHub and GitLab runners.
_PHASE = re2.compile(
    rb"(?m)^(?:==> |\[)?(?:"
    + _CLOCK
    + rb"[^ \n]{0,12} )?phase ?(?P<number>\d+)?(?:/(?P<of>\d+))?: ?(?P<name>[^\n]{1,80})$"
    rb"|^<== (?:(?P<until>\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d)[^ \n]{0,12} )?"
    rb"phase (?P<done>[^\n]{1,80}?) done(?:, wall (?P<wall>\d{1,9}) s)?"
    rb"|^==> ops-phase (?P<ops_at>[\dT:-]{19})Z start (?P<ops_name>[^\n]{1,80})$"
    rb"|^==> ops-phase (?P<ops_until>[\dT:-]{19})Z end"
    rb"|^::group::(?P<group>[^\n]{1,80})$|^(?P<endgroup>::endgroup::)"
    rb"|^section_start:(?P<epoch>\d{10}):(?P<section>[\w.\-]{1,80})"
    rb"|^section_end:(?P<epoch_end>\d{10}):[\w.\-]{1,80}"
)
_LEVELS = re2.compile(
    rb"(?m)^[^\n]{0,120}?(?:(?P<error>\b(?:ERROR|FATAL|CRITICAL|SEVERE|PANIC)\b|%MSG-[es]\b"
    rb"|\b\w{0,60}(?:[Ee]rror|Exception): "
    rb"|\[(?:error|fatal|critical)\]|level=(?:error|fatal)|\bfatal: |\berror: )"
    rb"|(?P<warning>\bWARN(?:ING)?\b|%MSG-w\b|\b\w{0,60}[Ww]arning: |\[warn(?:ing)?\]|level=warn)"
    rb"|(?P<debug>\b(?:DEBUG|TRACE|VERBOSE)\b|%MSG-d\b|\[(?:debug|trace)\]|level=(?:debug|trace)))"
)


@dataclass(frozen=True, slots=True)
class Phase:
    """A phase of a job: its bytes [begin, end), and its duration if the log contains it.

    `done` is None while unknown.
    """

    name: str
    begin: int
    end: int
    started_at: datetime | None = None
    seconds: int | None = None
    done: bool | None = None


@dataclass(frozen=True, slots=True)
class LevelLine:
    """A line with a level, identified by the offset of its first byte."""

    offset: int
    level: Level


class PhaseMark(NamedTuple):
    """A line that starts the phase `name`, or that ends the current phase if `name` is empty.

    Times are None if the line contains none.
    """

    begin: int
    name: bytes
    at: datetime | None
    seconds: int | None = None


@dataclass(frozen=True, slots=True)
class PackMarks:
    """Markers found with a pack: phases in order, and levels by the start of the line."""

    phases: Sequence[PhaseMark] = ()
    levels: Mapping[int, Level] = field(default_factory=dict)


NO_PACK_MARKS = PackMarks()


def find_pack_marks(markers: Markers, data: bytes) -> tuple[PackMarks, str]:
    """Return the marks of an experiment's pack in a block, and a message if they are missing.

    They are searched in a process that is killed if too slow.
    """
    if markers == NO_MARKERS:
        return NO_PACK_MARKS, ""
    try:
        return POOL.call(pack_marks_in, data, markers, seconds=PACK_SECONDS), ""
    except PoolBusy:
        return NO_PACK_MARKS, BUSY
    except BudgetExceeded:
        return NO_PACK_MARKS, TOO_COSTLY


def pack_marks_in(data: bytes, markers: Markers) -> PackMarks:
    """Search a block with the expressions of a pack; their cost is not bounded."""
    levels: dict[int, Level] = {}
    for level, regex in markers.levels:
        for match in compile_pattern(regex).finditer(data):
            line_begin = data.rfind(b"\n", 0, match.start()) + 1
            levels.setdefault(line_begin, level)
    return PackMarks(_pack_phases(data, markers), levels)


def list_phases(data: bytes, offset: int, pack_marks: PackMarks = NO_PACK_MARKS) -> list[Phase]:
    """Return the phases of a block of whole lines that starts at `offset`, in order.

    Lines before the first marker belong to no phase.
    """
    phases: list[Phase] = []
    for mark in merge(_known_phase_marks(data), pack_marks.phases, key=lambda mark: mark.begin):
        begin = offset + mark.begin
        if mark.name:
            if len(phases) >= MOST_PHASES:
                break
            phases = _end_last(phases, begin, mark.at)
            name = " ".join(text_of(clean(mark.name)).split())[:80]
            phases.append(Phase(name, begin, offset + len(data), mark.at))
        elif phases:
            if mark.seconds is None:
                seconds = _seconds_between(phases[-1].started_at, mark.at)
            else:
                seconds = mark.seconds
            phases[-1] = replace(phases[-1], done=True, seconds=seconds)
    return phases


def _known_phase_marks(data: bytes) -> Iterator[PhaseMark]:
    """Yield the phase markers that the portal knows, in order."""
    for match in _PHASE.finditer(data):
        fields = {key.decode(): value for key, value in match.groupdict().items()}
        name = fields["name"] or fields["ops_name"] or fields["group"] or fields["section"]
        if name:
            started_at = _time(fields["at"] or fields["ops_at"]) or _epoch(fields["epoch"])
            yield PhaseMark(match.start(), name, started_at)
        else:
            ended_at = _time(fields["until"] or fields["ops_until"]) or _epoch(fields["epoch_end"])
            seconds = int(fields["wall"]) if fields["wall"] else None
            yield PhaseMark(match.start(), b"", ended_at, seconds)


def _pack_phases(data: bytes, markers: Markers) -> list[PhaseMark]:
    """Return the phase markers of an experiment, in order."""
    marks = []
    for regex, is_start in (*product(markers.starts, [True]), *product(markers.ends, [False])):
        for match in compile_pattern(regex).finditer(data):
            fields = {key.decode(): value for key, value in match.groupdict().items()}
            name = fields.get("name") or b""
            wall = fields.get("wall") or b""
            if is_start and not name.strip():
                continue
            seconds = int(wall) if wall.isdigit() and len(wall) < 10 else None
            begin = data.rfind(b"\n", 0, match.start()) + 1
            marks.append(
                PhaseMark(begin, name if is_start else b"", _time(fields.get("at")), seconds)
            )
    return sorted(marks, key=lambda mark: mark.begin)


def _end_last(phases: list[Phase], end: int, at: datetime | None) -> list[Phase]:
    """End the last phase where the next one starts."""
    if not phases:
        return phases
    last = phases[-1]
    seconds = last.seconds
    if seconds is None:
        seconds = _seconds_between(last.started_at, at)
    return [*phases[:-1], replace(last, end=end, seconds=seconds, done=True)]


def _time(raw: bytes | None) -> datetime | None:
    try:
        if raw:
            return datetime.fromisoformat(raw.decode().replace("T", " ")).replace(tzinfo=None)
    except ValueError:  # the log contains a time that does not exist
        pass
    return None


def _epoch(raw: bytes | None) -> datetime | None:
    if not raw:
        return None
    # Naive, because only differences are used.
    return datetime.fromtimestamp(int(raw), tz=None)  # noqa: DTZ006


def _seconds_between(start: datetime | None, end: datetime | None) -> int | None:
    seconds = int((end - start).total_seconds()) if start and end else -1
    return seconds if seconds >= 0 else None


def list_levels(
    data: bytes, offset: int, pack_marks: PackMarks = NO_PACK_MARKS
) -> Iterator[LevelLine]:
    """Yield the lines of a block that have a level, in order.

    A level marked by the experiment takes precedence.
    """
    pack_lines = []
    for begin in sorted(pack_marks.levels):
        pack_lines.append(LevelLine(offset + begin, pack_marks.levels[begin]))
    marked = {line.offset for line in pack_lines}
    known_lines = _known_levels(data, offset, without=marked)
    yield from merge(pack_lines, known_lines, key=lambda line: line.offset)


def _known_levels(data: bytes, offset: int, *, without: Container[int]) -> Iterator[LevelLine]:
    """Yield the lines with a level that the portal knows, in order."""
    for match in _LEVELS.finditer(data):
        level = next(level for level in LEVELS if match.group(level.encode()))
        if offset + match.start() not in without:
            yield LevelLine(offset + match.start(), level)


def phase_at(phases: Sequence[Phase], offset: int) -> int | None:
    """Return the index of the phase that contains a byte; None before the first phase."""
    index = bisect_right([phase.begin for phase in phases], offset) - 1
    return index if index >= 0 else None
