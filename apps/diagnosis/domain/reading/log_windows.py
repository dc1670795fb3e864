"""Windows into a job's logs, with known errors marked.

A window shows the last lines, earlier lines, or lines around an offset.
"""

from dataclasses import dataclass, replace

from apps.diagnosis.domain.known_errors.current import known_errors_in
from apps.diagnosis.domain.reading.log_texts import (
    LogText,
    NoLog,
    logs_of,
    open_excerpt,
    open_log_text,
)
from apps.diagnosis.engine.base import Block, JobFacts, Pattern
from apps.diagnosis.engine.evidence.secrets import starred
from apps.diagnosis.engine.logs.tail import LogLine, lines_of
from apps.diagnosis.engine.verdict import WEIGHT
from apps.diagnosis.enums import Role, Stream
from apps.diagnosis.models import LogExcerpt, Verdict
from apps.jobs.models import Job
from apps.statusboard.domain.board.names import service_names

LINE_CHOICES = (10, 50, 500)
MOST_LINES = 5000
WINDOW_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True)
class LineView:
    """A line of a log, with the known error that matched it, if any.

    `service` is named as on the status board.
    """

    line: LogLine
    role: Role | None = None
    pattern: str = ""
    service: str = ""


@dataclass(frozen=True, slots=True)
class LogView:
    """A window into one of a job's logs. `problem` says why it does not show the current log."""

    job: Job
    stream: Stream
    streams: tuple[Stream, ...]
    wanted: int
    lines: tuple[LineView, ...] = ()
    size_bytes: int | None = None
    earlier: int | None = None
    offset: int | None = None
    problem: str = ""
    choices: tuple[int, ...] = LINE_CHOICES
    most: int = MOST_LINES


def log_view(
    job: Job,
    *,
    stream: Stream | None = None,
    lines: int = 50,
    before: int | None = None,
    offset: int | None = None,
    verdict: Verdict | None = None,
) -> LogView:
    """Return the last lines of a log, those before byte `before`, or those around byte `offset`.

    Lines within the stored excerpt come from the excerpt. Others are read from the log itself: only
    below the log roots, at most 1 MB, and with secrets starred. `verdict` is the verdict on the
    job, if it is loaded already.
    """
    if verdict is None and stream is None:
        verdict = Verdict.objects.filter(job=job).first()
    logs = logs_of(job)
    chosen = stream or default_stream(verdict, logs.streams)
    view = LogView(job=job, stream=chosen, streams=logs.streams, wanted=lines, offset=offset)
    excerpt = logs.excerpts.get(chosen)
    if excerpt is not None:
        with open_excerpt(excerpt) as text:
            begin, end = _bounds(view, text, before)
            place = before if offset is None else offset
            is_inside = place is None or text.begin <= place <= text.end
            # Lines before the excerpt may belong to the window, too.
            if is_inside and (text.begin == 0 or begin > text.begin):
                return _read_window(view, text, begin, end)
    try:
        with open_log_text(logs, chosen) as text:
            begin, end = _bounds(view, text, before)
            return _read_window(view, text, begin, end)
    except NoLog as reason:
        return replace(view, problem=str(reason))


def default_stream(verdict: Verdict | None, streams: tuple[Stream, ...]) -> Stream:
    """Return the stream in which the cause was found, else the first stream."""
    for reason in verdict.reasons if verdict else ():
        name = str(reason.get("target", "")).partition(":")[0]
        if name in streams:
            return Stream(name)
    return streams[0] if streams else Stream.STDOUT


def _bounds(view: LogView, text: LogText, before: int | None) -> tuple[int, int]:
    """Return start and end of the lines to show."""
    if view.offset is None:
        end = text.end
        if before is not None:
            end = max(text.begin, min(before, text.end))
        return text.start_of_lines(end, view.wanted, reach=WINDOW_BYTES), end
    place = max(text.begin, min(view.offset, text.end))
    half = view.wanted // 2
    begin = text.start_of_lines(place, half, reach=WINDOW_BYTES // 2)
    return begin, text.end_of_lines(place, lines=half + 1, reach=WINDOW_BYTES // 2)


def _read_window(view: LogView, text: LogText, begin: int, end: int) -> LogView:
    data = text.read(begin, end)
    block = Block(data, begin, text.size_bytes, text.number_at(begin), view.stream)
    return replace(
        view,
        lines=mark_lines(view.job, block),
        size_bytes=text.size_bytes,
        earlier=begin if data and begin > text.begin else None,
        problem=text.problem,
    )


def block_of(excerpt: LogExcerpt) -> Block:
    # An excerpt stored by an earlier version may lack stars.
    return Block(
        starred(excerpt.data),
        excerpt.first_offset,
        excerpt.size_bytes,
        excerpt.first_line_number,
        Stream(excerpt.stream),
    )


def mark_lines(job: Job, block: Block) -> tuple[LineView, ...]:
    """Mark the lines that match known errors."""
    marks = marks_in(job, block)
    names = service_names(mark.service for mark in marks.values())
    views = []
    for line in lines_of(block):
        views.append(
            LineView(line, mark.role, mark.id, names.get(mark.service, mark.service))
            if (mark := marks.get(line.offset))
            else LineView(line)
        )
    return tuple(views)


def marks_in(job: Job, block: Block) -> dict[int, Pattern]:
    """Return the known errors in a block by offset of their line, without noise.

    Of several in one line, the one with the most important role is returned.
    """
    marks: dict[int, Pattern] = {}
    facts = JobFacts(experiment=job.experiment.key if job.experiment else "")
    for hit in known_errors_in(facts, block):
        if hit.pattern.role is not Role.NOISE:
            marks.setdefault(hit.offset, hit.pattern)
            if WEIGHT[hit.pattern.role] < WEIGHT[marks[hit.offset].role]:
                marks[hit.offset] = hit.pattern
    return marks
