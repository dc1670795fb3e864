"""Windows into a job's logs, with known errors marked.

A window shows the last lines, earlier lines, or lines around an offset.
"""

from dataclasses import dataclass, replace

from apps.diagnosis.domain.known_errors.current import known_errors_in
from apps.diagnosis.domain.reading.job_facts import log_paths
from apps.diagnosis.domain.reading.log_texts import open_file_text
from apps.diagnosis.engine.base import Block, JobFacts, Pattern
from apps.diagnosis.engine.evidence.secrets import starred, starred_block
from apps.diagnosis.engine.logs.tail import LogError, LogLine, lines_of, read_around, read_back
from apps.diagnosis.engine.verdict import WEIGHT
from apps.diagnosis.enums import Role, Stream
from apps.diagnosis.models import LogExcerpt, Verdict
from apps.jobs.models import Job

LINE_CHOICES = (10, 50, 500)
MOST_LINES = LINE_CHOICES[-1]
WINDOW_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True)
class LineView:
    """A line of a log, with the known error that matched it, if any."""

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
    at: int | None = None
    problem: str = ""
    choices: tuple[int, ...] = LINE_CHOICES


def log_view(
    job: Job,
    *,
    stream: Stream | None = None,
    lines: int = 50,
    before: int | None = None,
    at: int | None = None,
) -> LogView:
    """Return the last lines of a log, those before byte `before`, or those around byte `at`.

    Lines within the stored excerpt come from the excerpt. Others are read from the log itself: only
    below the log roots, at most 1 MB, and with secrets starred.
    """
    excerpts = {Stream(row.stream): row for row in LogExcerpt.objects.filter(harvest__job=job)}
    paths = dict(log_paths(job))
    streams = tuple(
        candidate for candidate in Stream if candidate in excerpts or candidate in paths
    )
    chosen = stream or default_stream(job, streams)
    view = LogView(job=job, stream=chosen, streams=streams, wanted=lines, at=at)
    excerpt = excerpts.get(chosen)
    block, problem = _window(view, excerpt, paths.get(chosen, ""), before)
    if excerpt is None and job.started_at is None:
        problem = "The job never ran, so it wrote no log."
    if block is None:
        return replace(view, problem=problem)
    shown = mark_lines(job, block)
    earlier = None
    if block.offset > block.begin and block.data:
        earlier = block.offset
    return replace(view, lines=shown, size_bytes=block.file_bytes, earlier=earlier, problem=problem)


def default_stream(job: Job, streams: tuple[Stream, ...]) -> Stream:
    """Return the stream in which the cause was found, else the first stream."""
    verdict = Verdict.objects.filter(job=job).first()
    for reason in verdict.reasons if verdict else ():
        name = str(reason.get("target", "")).partition(":")[0]
        if name in streams:
            return Stream(name)
    return streams[0] if streams else Stream.STDOUT


def _window(
    view: LogView, excerpt: LogExcerpt | None, path: str, before: int | None
) -> tuple[Block | None, str]:
    lines = view.wanted
    at = view.at
    stored = None
    if excerpt:
        stored = _stored_window(excerpt, lines, before, at)
    if stored is not None:
        return stored, ""
    if not path:
        return None, "Log path unknown."
    try:
        with open_file_text(view.job, view.stream, path) as (descriptor, part):
            if at is not None:
                block = read_around(descriptor, at, part, lines=lines, budget_bytes=WINDOW_BYTES)
            else:
                block = read_back(
                    descriptor, part, end=before, lines=lines, budget_bytes=WINDOW_BYTES
                )
            return starred_block(descriptor, block), ""
    except LogError as error:
        if excerpt:
            return (block_of(excerpt), f"{error}. Showing the stored excerpt.")
        return (None, str(error))


def block_of(excerpt: LogExcerpt) -> Block:
    # An excerpt stored by an earlier version may lack stars.
    return Block(
        starred(excerpt.data),
        excerpt.first_offset,
        excerpt.size_bytes,
        excerpt.first_line_number,
        Stream(excerpt.stream),
    )


def _stored_window(
    excerpt: LogExcerpt, lines: int, before: int | None, at: int | None
) -> Block | None:
    """Return the window from the excerpt; None if it reaches beyond the excerpt."""
    block = block_of(excerpt)
    end = len(block.data)
    if before is not None:
        end = before - block.offset
    elif at is not None:
        end = _end_of_lines(block.data, at - block.offset, lines // 2)
    if not 0 <= end <= len(block.data) or (at is not None and at < block.offset):
        return None
    start = end - block.data[:end].endswith(b"\n")
    for _ in range(lines):
        start = block.data.rfind(b"\n", 0, max(start, 0))
        if start < 0:
            break
    if start < 0 and block.offset > 0:
        return None
    number = block.first_line
    data = block.data[start + 1 : end]
    return replace(
        block,
        data=data,
        offset=block.offset + start + 1,
        first_line=None if number is None else number + block.data.count(b"\n", 0, start + 1),
    )


def _end_of_lines(data: bytes, position: int, lines: int) -> int:
    for _ in range(lines):
        position = data.find(b"\n", max(position, 0)) + 1
        if position == 0:
            return len(data)
    return position


def mark_lines(job: Job, block: Block) -> tuple[LineView, ...]:
    """Mark the lines that match known errors."""
    marks = marks_in(job, block)
    views = []
    for line in lines_of(block):
        views.append(
            LineView(line, mark.role, mark.id, mark.service)
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
