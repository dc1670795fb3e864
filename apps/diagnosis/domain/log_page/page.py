"""The page of a log: a window of its rows by phase, its outline, and links to all other places.

At most a few megabytes of a log of any size are read, except for a search, which has a time
budget.
"""

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice

from apps.accounts.models import User
from apps.clusters.schedulers.base import JobState
from apps.core.domain.expressions.line_search import Span
from apps.core.errors import InvalidFields
from apps.diagnosis.domain.log_page.outline import (
    PackMarks,
    Phase,
    find_pack_marks,
    list_levels,
    list_phases,
    phase_at,
)
from apps.diagnosis.domain.log_page.rows import (
    LINE_BYTES,
    Fold,
    KnownErrorMark,
    LineHighlights,
    PageLine,
    RawLine,
    fold_lines,
    list_rows,
    page_line,
    shown_bytes,
    split_lines,
)
from apps.diagnosis.domain.log_page.search import LogMatches, LogSearch, search_log, spans_in
from apps.diagnosis.domain.log_page.service_logs import (
    Row,
    ServiceLine,
    service_lines,
    with_service_lines,
)
from apps.diagnosis.domain.packs.current import markers_of
from apps.diagnosis.domain.reading.log_texts import LogText, NoLog, logs_of, open_log_text
from apps.diagnosis.domain.reading.log_windows import default_stream, marks_in
from apps.diagnosis.domain.reading.success_samples import baseline_for
from apps.diagnosis.engine.base import Block
from apps.diagnosis.engine.evidence.novelty import novel_rows
from apps.diagnosis.engine.formats.chunks import newlines
from apps.diagnosis.engine.formats.markers import Level
from apps.diagnosis.enums import Role, Stream
from apps.diagnosis.models import Evidence, Verdict
from apps.jobs.models import Job

#: A log up to this size and up to `MOST_LINES` is shown folded as a whole; a larger one as a window
#: around a place.
WHOLE_BYTES = 1_000_000
WINDOW_BYTES = 400_000
BEFORE_BYTES = 300_000
#: Lines in a window. Half a million lines of one byte take 3 s.
MOST_LINES = 50_000
MOST_LINES_BEFORE = 40_000
#: Above the first size, only the last part of a log is searched for phases and levels.
OUTLINE_BYTES = 2_000_000
OUTLINE_TAIL_BYTES = 1_000_000
MOST_LEVEL_LINES = 10_000
PLAIN_LINES = 500
LINES_BEFORE = 50
#: Bytes shown before a place in a line that is too long to show.
BEFORE_PLACE_BYTES = 256


@dataclass(frozen=True, slots=True)
class PageQuery:
    """The request for a page: a place, a range of bytes, a level or a search.

    `opened_fold` is the range of bytes of a fold to open.
    """

    offset: int | None = None
    to: int | None = None
    line: tuple[int, int] | None = None
    opened_fold: tuple[int, int] | None = None
    level: Level | None = None
    search: LogSearch | None = None
    debug: bool = False
    fold: bool = True


@dataclass(frozen=True, slots=True)
class Section:
    """A phase with its rows in the window; without rows if the window is elsewhere.

    `counts` has the lines by level, and `known` for known errors.
    """

    phase: Phase | None
    failed: bool
    rows: tuple[Row, ...]
    is_open: bool
    counts: Counter[str]
    first_number: int | None = None
    last_number: int | None = None


@dataclass(frozen=True, slots=True)
class KnownErrorOnPage:
    """A known error in the log, with its first line and its number of lines."""

    mark: KnownErrorMark
    offset: int
    count: int


@dataclass(frozen=True, slots=True)
class Novelty:
    """The shown lines that occur in none of the `logs` successful logs.

    Without such logs, there are no novel lines.
    """

    logs: int = 0
    rows: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class MapMark:
    """A marked line on the map of a log: how far from its start, in percent, and its offset.

    `kind` is `known`, `error` or `warning`.
    """

    percent: float
    kind: str
    offset: int


@dataclass(frozen=True, slots=True)
class StepLinks:
    """A position in a list of offsets, counted from 1, and the previous and next offset."""

    current: int = 0
    count: int = 0
    previous: int | None = None
    next: int | None = None


@dataclass(frozen=True, slots=True)
class LogPage:
    """The contents of the page of a log.

    `problem` says why the current log is not shown, or why there is none; `warning`, why there are
    no search results or no markers of the experiment pack. `sections` have the rows, and
    `phases` every phase of the outline. The page opens around the byte `place`.
    """

    job: Job
    stream: Stream
    streams: tuple[Stream, ...]
    query: PageQuery
    problem: str = ""
    warning: str = ""
    size_bytes: int | None = None
    begin: int = 0
    end: int = 0
    sections: tuple[Section, ...] = ()
    phases: tuple[Section, ...] = ()
    errors: tuple[KnownErrorOnPage, ...] = ()
    novelty: Novelty = Novelty()
    counts: Counter[str] = field(default_factory=Counter)
    outlined_from: int | None = None
    place: int | None = None
    error_steps: StepLinks = StepLinks()
    matches: LogMatches | None = None
    match_steps: StepLinks = StepLinks()
    earlier: int | None = None
    later: int | None = None
    hidden_debug: int = 0
    map_marks: tuple[MapMark, ...] = ()

    @property
    def is_empty(self) -> bool:
        return self.size_bytes == 0


def log_page(
    job: Job,
    *,
    user: User,
    stream: Stream | None,
    query: PageQuery,
    verdict: Verdict | None = None,
) -> LogPage:
    """Return the page of a job's log for a user.

    Without a place, it opens around the cause or at the end. `verdict` is the verdict on the job,
    if it is loaded already.
    """
    if verdict is None:
        verdict = Verdict.objects.filter(job=job).first()
    logs = logs_of(job)
    chosen = stream or default_stream(verdict, logs.streams)
    page = LogPage(job=job, stream=chosen, streams=logs.streams, query=query)
    try:
        with open_log_text(logs, chosen) as text:
            return _read_page(page, text, user, verdict)
    except NoLog as reason:
        return replace(page, problem=str(reason))


@dataclass(frozen=True, slots=True)
class _Window:
    """The bytes of a log that the page shows, and the outline of the log.

    The outline begins at `outlined_from`; `missing` is a message about missing markers.
    """

    begin: int
    data: bytes
    lines: list[RawLine]
    outlined_from: int
    phases: list[Phase]
    levels: dict[int, Level]
    missing: str

    @property
    def end(self) -> int:
        return self.begin + len(self.data)


def _read_page(page: LogPage, text: LogText, user: User, verdict: Verdict | None) -> LogPage:
    """Return the page with the lines of the log, marked and divided into sections."""
    matches = None
    search_problem = ""
    if page.query.search is not None:
        try:
            matches = search_log(text, page.query.search, user=user)
        except InvalidFields as error:
            search_problem = " ".join(error.problems["find"])
    place, selected = _place_to_open(page, text, matches, verdict)
    window = _read_window(page, text, place)

    marks = _marks(page, Block(window.data, window.begin, text.end, None, page.stream))
    novelty = _novelty(page.job, window.lines)
    highlights = LineHighlights(
        levels=window.levels,
        marks=marks,
        matching_lines=_matching_lines(matches, window.lines),
        novel_lines=frozenset(novelty.rows),
        phase_starts=frozenset(phase.begin for phase in window.phases),
        selected=selected,
        log_end=text.end,
    )
    spans = _spans(matches, window.lines, highlights, user)
    rows = _rows_of_window(page, text, window, highlights, spans)
    sections = _sections(page.job, rows, window, highlights)
    return replace(
        page,
        problem=text.problem,
        warning=" ".join(filter(None, [search_problem, window.missing])),
        size_bytes=text.end - text.begin,
        begin=text.begin,
        end=text.end,
        sections=tuple(section for section in sections if section.rows or section.phase),
        phases=tuple(section for section in sections if section.phase),
        errors=_known_errors(marks),
        novelty=novelty,
        counts=Counter(window.levels.values()),
        outlined_from=window.outlined_from if window.outlined_from > text.begin else None,
        place=place,
        error_steps=_steps(_error_offsets(highlights), place),
        matches=matches,
        match_steps=_steps(matches.offsets, place) if matches else StepLinks(),
        earlier=max(text.begin, window.begin - 1) if window.begin > text.begin else None,
        later=window.end if window.end < text.end else None,
        hidden_debug=0 if page.query.debug else _count_debug_lines(window),
        map_marks=_map_marks(text, window.levels, marks),
    )


def _read_window(page: LogPage, text: LogText, place: int | None) -> _Window:
    """Read the lines to show, and the phases and levels of the log."""
    begin, data = _bytes_to_show(text, place, page.query)
    lines = split_lines(data, begin, text.number_at(begin))

    # The outline covers the whole log, or the last part of a large one.
    outlined_from = text.begin
    if text.end - text.begin > OUTLINE_BYTES:
        outlined_from = text.line_start(text.end - OUTLINE_TAIL_BYTES, reach=LINE_BYTES)
    outlined = text.read(outlined_from, text.end)
    markers = markers_of(page.job.experiment_id)
    pack_marks, missing = find_pack_marks(markers, outlined)
    phases = list_phases(outlined, outlined_from, pack_marks)
    levels = _levels(outlined, outlined_from, pack_marks)

    if begin < outlined_from:
        pack_marks, missing = find_pack_marks(markers, data)
        levels |= _levels(data, begin, pack_marks)
    return _Window(begin, data, lines, outlined_from, phases, levels, missing)


def _place_to_open(
    page: LogPage, text: LogText, matches: LogMatches | None, verdict: Verdict | None
) -> tuple[int | None, tuple[int, int] | None]:
    """Return the byte around which the page opens, and the range of bytes that is selected.

    Without a query, this is the first line of this log that the verdict refers to.
    """
    query = page.query
    if query.line is not None:
        first, last = (text.offset_of(number) for number in query.line)
        if first is not None:
            return (first, (first, first if last is None else last))
        return (None, None)
    if query.offset is not None:
        offset = max(text.begin, min(query.offset, text.end))
        return offset, (offset, max(offset, query.to or offset))
    if matches and matches.offsets:
        return matches.offsets[0], (matches.offsets[0], matches.offsets[0])
    for reason in verdict.reasons if verdict else ():
        name, _, byte = str(reason.get("target", "")).partition(":")
        if name == page.stream and byte.isdigit():
            return int(byte), None
    return None, None


def _bytes_to_show(text: LogText, place: int | None, query: PageQuery) -> tuple[int, bytes]:
    """Return start and bytes of the lines to show."""
    if query.opened_fold is not None:
        begin = text.line_start(query.opened_fold[0], reach=LINE_BYTES)
        reach = min(query.opened_fold[1] - begin, WHOLE_BYTES)
        return begin, text.read(begin, text.end_of_lines(begin, lines=MOST_LINES, reach=reach))
    if query.fold and text.end - text.begin <= WHOLE_BYTES:
        data = text.read(text.begin, text.end)
        if newlines(data) <= MOST_LINES:
            return text.begin, data

    centre = text.end if place is None else place
    line = text.line_start(centre, reach=LINE_BYTES)
    if centre - line >= LINE_BYTES:  # the line is too long to show
        begin = centre - BEFORE_PLACE_BYTES
    elif query.fold:
        begin = text.line_start(max(text.begin, centre - BEFORE_BYTES), reach=LINE_BYTES)
        if newlines(text.read(begin, line)) > MOST_LINES_BEFORE:
            begin = text.start_of_lines(line, MOST_LINES_BEFORE, reach=BEFORE_BYTES)
    elif place is None:
        begin = text.start_of_lines(text.end, PLAIN_LINES, reach=BEFORE_BYTES)
    else:
        begin = text.start_of_lines(line, LINES_BEFORE, reach=BEFORE_BYTES)
    lines = MOST_LINES if query.fold else PLAIN_LINES
    return begin, text.read(begin, text.end_of_lines(begin, lines=lines, reach=WINDOW_BYTES))


def _levels(data: bytes, begin: int, pack_marks: PackMarks) -> dict[int, Level]:
    levels = {}
    for line in islice(list_levels(data, begin, pack_marks), MOST_LEVEL_LINES):
        levels[line.offset] = line.level
    return levels


def _marks(page: LogPage, block: Block) -> dict[int, KnownErrorMark]:
    """Return the known errors by offset of their line, from the analysis and the window shown."""
    evidence = Evidence.objects.filter(harvest__job=page.job, stream=page.stream).exclude(
        role=Role.NOISE
    )
    marks = {}
    for hit in evidence.order_by("-role"):
        marks[hit.offset] = KnownErrorMark(Role(hit.role), hit.pattern, hit.service)
    marks |= {
        offset: KnownErrorMark(pattern.role, pattern.id, pattern.service)
        for offset, pattern in marks_in(page.job, block).items()
    }
    return dict(sorted(marks.items()))


def _novelty(job: Job, lines: Sequence[RawLine]) -> Novelty:
    """Return the lines of a failed job that no successful job of its stage writes."""
    baseline = baseline_for(job) if job.is_failed else None
    if baseline is None:
        return Novelty()
    plain_lines = (line.plain for line in lines)
    offsets = [lines[index].offset for index, _ in novel_rows(plain_lines, baseline)]
    return Novelty(baseline.logs, tuple(offsets))


def _matching_lines(matches: LogMatches | None, lines: Sequence[RawLine]) -> frozenset[int]:
    """Return the offsets of the lines in the window that match the search."""
    if matches is None or not lines:
        return frozenset()
    starts = [line.offset for line in lines]
    matching = set()
    for offset in matches.offsets[bisect_left(matches.offsets, starts[0]) :]:
        if offset < lines[-1].end:
            matching.add(starts[bisect_right(starts, offset) - 1])
    return frozenset(matching)


def _error_offsets(highlights: LineHighlights) -> list[int]:
    """Return the offsets of known errors and of lines with the level error, in order."""
    offsets = set(highlights.marks)
    for offset, level in highlights.levels.items():
        if level == "error":
            offsets.add(offset)
    return sorted(offsets)


def _count_debug_lines(window: _Window) -> int:
    """Count the debug lines in the window."""
    return sum(window.levels.get(line.offset) == "debug" for line in window.lines)


def _spans(
    matches: LogMatches | None, lines: Sequence[RawLine], highlights: LineHighlights, user: User
) -> Mapping[int, Sequence[Span]]:
    """Return the search matches in the lines of the window, by offset of the line."""
    matching = [line for line in lines if line.offset in highlights.matching_lines]
    if matches is None or not matching:
        return {}
    spans = spans_in([shown_bytes(line) for line in matching], matches.search, user=user)
    return {line.offset: spans_of_line for line, spans_of_line in zip(matching, spans, strict=True)}


def _rows_of_window(
    page: LogPage,
    text: LogText,
    window: _Window,
    highlights: LineHighlights,
    spans: Mapping[int, Sequence[Span]],
) -> list[Row]:
    """Return the rows of the window, with the lines of services that fall into it."""
    query = page.query
    services: list[ServiceLine] = []
    if query.opened_fold is not None:
        rows = _rows_of_part(window.lines, query.opened_fold[1], highlights, spans)
    else:
        rows = list_rows(
            window.lines,
            highlights,
            spans=spans,
            only=query.level,
            debug=query.debug,
            fold=query.fold or bool(query.level),
        )
        if query.level is None:
            services = service_lines(page.job)
    return with_service_lines(
        rows, services, text=text, begin=window.begin, data=window.data, job=page.job
    )


def _rows_of_part(
    lines: list[RawLine], end: int, highlights: LineHighlights, spans: Mapping[int, Sequence[Span]]
) -> list[PageLine | Fold]:
    """Return the rows of an opened fold, which ends at `end`."""
    rows: list[PageLine | Fold] = []
    for line in lines[:PLAIN_LINES]:
        rows.append(
            page_line(
                line,
                spans=spans.get(line.offset, ()),
                level=highlights.levels.get(line.offset),
                mark=highlights.marks.get(line.offset),
            )
        )
    rest = lines[PLAIN_LINES:]
    if rest:
        rows.append(replace(fold_lines(rest, highlights), end=max(end, rest[-1].end)))
    elif lines and lines[-1].end < end:
        rows.append(Fold(lines[-1].end, end, None, 0, f"{end - lines[-1].end:,} bytes more"))
    return rows


def _sections(
    job: Job, rows: Sequence[Row], window: _Window, highlights: LineHighlights
) -> list[Section]:
    """Divide rows by phase; a phase with an eventful line is open.

    The counts of levels and known errors of a phase come from the whole outline.
    """
    phases = window.phases
    by_phase = _rows_by_phase(rows, phases)
    counts: dict[int | None, Counter[str]] = {}
    for offset, level in highlights.levels.items():
        counts.setdefault(phase_at(phases, offset), Counter())[level] += 1
    for offset in highlights.marks:
        counts.setdefault(phase_at(phases, offset), Counter())["known"] += 1
    number_by_start = {line.offset: line.number for line in window.lines}
    number_by_end = {line.end: line.number for line in window.lines}

    sections = [Section(None, False, tuple(by_phase.get(None, ())), True, Counter())]
    for index, phase in enumerate(phases):
        rows_of_phase = tuple(by_phase.get(index, ()))
        is_last = index == len(phases) - 1
        has_events = bool(counts.get(index)) or any(map(_is_eventful, rows_of_phase))
        sections.append(
            Section(
                phase=phase,
                failed=is_last and not phase.done and job.state != JobState.COMPLETED,
                rows=rows_of_phase,
                is_open=bool(rows_of_phase) and (is_last or has_events),
                counts=counts.get(index, Counter()),
                first_number=number_by_start.get(phase.begin),
                last_number=number_by_end.get(phase.end),
            )
        )
    return sections


def _rows_by_phase(rows: Sequence[Row], phases: Sequence[Phase]) -> dict[int | None, list[Row]]:
    """Group rows by the index of their phase; None is before the first phase.

    A line of a service belongs to the phase of the row before it.
    """
    by_phase: dict[int | None, list[Row]] = {}
    current = None
    for row in rows:
        if not isinstance(row, ServiceLine):
            current = phase_at(phases, row.offset if isinstance(row, PageLine) else row.begin)
        by_phase.setdefault(current, []).append(row)
    return by_phase


def _is_eventful(row: Row) -> bool:
    """Whether a row is worth opening its phase for."""
    if isinstance(row, ServiceLine):
        return True
    if not isinstance(row, PageLine):
        return False
    return bool(row.mark or row.is_selected or any(piece.is_match for piece in row.pieces))


def _known_errors(marks: dict[int, KnownErrorMark]) -> tuple[KnownErrorOnPage, ...]:
    first: dict[KnownErrorMark, int] = {}
    counts = Counter(marks.values())
    for offset, mark in marks.items():
        first.setdefault(mark, offset)
    roles = list(Role)
    by_role = sorted(first.items(), key=lambda item: roles.index(item[0].role))
    return tuple(KnownErrorOnPage(mark, offset, counts[mark]) for mark, offset in by_role)


def _steps(offsets: Sequence[int], place: int | None) -> StepLinks:
    """Return the position of the page in these offsets: the last one not after the place."""
    if place is None:
        return StepLinks(0, len(offsets), offsets[-1] if offsets else None, None)
    index = bisect_right(offsets, place) - 1
    at_one = index >= 0
    is_there = at_one and offsets[index] == place
    before = index - 1 if is_there else index
    return StepLinks(
        current=index + 1 if at_one else 0,
        count=len(offsets),
        previous=offsets[before] if before >= 0 else None,
        next=offsets[index + 1] if index + 1 < len(offsets) else None,
    )


def _map_marks(
    text: LogText, levels: dict[int, Level], marks: dict[int, KnownErrorMark]
) -> tuple[MapMark, ...]:
    """Return the marks on the map of the log: some warnings, errors and known errors."""
    length = max(1, text.end - text.begin)
    warnings = [(offset, "warning") for offset, level in levels.items() if level == "warning"][:100]
    errors = [
        (offset, "error")
        for offset, level in levels.items()
        if level == "error" and offset not in marks
    ][:100]
    known = [(offset, "known") for offset in list(marks)[:200]]
    map_marks = []
    for offset, kind in (*warnings, *errors, *known):
        percent = round(100 * (offset - text.begin) / length, 1)
        map_marks.append(MapMark(percent, kind, offset))
    return tuple(map_marks)
