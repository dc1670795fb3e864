"""Open the text of a job's log for reading at any byte.

The text comes from the file, from a decompressed copy, or from the stored excerpt.
"""

import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from apps.diagnosis.domain.reading.attempts import attempts_of, open_own_log
from apps.diagnosis.domain.reading.job_facts import log_paths
from apps.diagnosis.engine.evidence.secrets import starred_part
from apps.diagnosis.engine.formats.chunks import newlines
from apps.diagnosis.engine.logs.compressed import opened_text
from apps.diagnosis.engine.logs.remote import is_remote
from apps.diagnosis.engine.logs.tail import WHOLE_BYTES, LogError
from apps.diagnosis.enums import HarvestState, Stream
from apps.diagnosis.models import LogExcerpt, LogHarvest
from apps.jobs.models import Job

_STEP = 1024 * 1024


class NoLog(Exception):
    """There is no log to read; the message gives the reason as a sentence."""


@dataclass(frozen=True, slots=True)
class LogText:
    """The text of a log: bytes [begin, end) of an open file.

    Lines are counted from the start of the file, or from the start of a stored excerpt: the line at
    byte `counted_from` has the number `first_number`, None if unknown. `size_bytes` is the size of
    the whole log. `problem` says why this is not the current log.
    """

    descriptor: int
    begin: int
    end: int
    size_bytes: int
    counted_from: int = 0
    first_number: int | None = 1
    problem: str = ""

    def read(self, begin: int, end: int) -> bytes:
        """Return these bytes with secrets starred; fewer if the file has shrunk."""
        begin = max(begin, self.begin)
        return starred_part(self.descriptor, self._read(begin, end), begin)

    def _read(self, begin: int, end: int) -> bytes:
        """Return these bytes unchanged; fewer if the file has shrunk."""
        begin = max(begin, self.begin)
        return b"".join(self._steps(begin, min(end, self.end), step_bytes=end - begin))

    def _steps(self, begin: int, end: int, *, step_bytes: int = _STEP) -> Iterator[bytes]:
        """Yield bytes of the file, also of what precedes the log in it."""
        while begin < end:
            data = os.pread(self.descriptor, min(step_bytes, end - begin), begin)
            if not data:
                return
            yield data
            begin += len(data)

    def line_start(self, offset: int, *, reach: int) -> int:
        """Return the start of the line that contains a byte, or the first byte within reach."""
        floor = max(self.begin, offset - reach)
        newline = self._read(floor, offset).rfind(b"\n")
        return floor + newline + 1 if newline >= 0 else floor

    def start_of_lines(self, end: int, lines: int, *, reach: int) -> int:
        """Return where the last `lines` lines before a byte start.

        A line that starts beyond reach does not count, unless it is the only one: then it is cut.
        """
        floor = max(self.begin, end - reach)
        data = self._read(floor, end)
        first = 0
        if floor > self.begin:
            first = data.find(b"\n") + 1
        if first == len(data):
            first = 0

        position = len(data) - data.endswith(b"\n")
        for _ in range(lines):
            position = data.rfind(b"\n", first, max(position, 0))
            if position < 0:
                return floor + first
        return floor + position + 1

    def end_of_lines(self, begin: int, *, reach: int, lines: int | None = None) -> int:
        """Return where the whole lines from a byte on end: `lines` of them, or all within reach.

        A line that ends beyond reach does not count, unless it is the only one: then it is cut.
        """
        data = self._read(begin, begin + reach)
        end = len(data)
        if begin + end < self.end:
            end = data.rfind(b"\n") + 1 or end
        if lines is None:
            return begin + end

        position = 0
        for _ in range(lines):
            position = data.find(b"\n", position, end) + 1
            if position == 0:
                return begin + end
        return begin + position

    def number_at(self, offset: int) -> int | None:
        """Return the number of the line that starts at a byte; None in a very large log."""
        if self.first_number is None or offset - self.counted_from > WHOLE_BYTES:
            return None
        number = self.first_number
        for data in self._steps(self.counted_from, offset):
            number += newlines(data)
        return number

    def offset_of(self, number: int) -> int | None:
        """Return the start of a line by its number.

        None if there is no such line, or if the log is too large to count.
        """
        if self.first_number is None or number < self.first_number:
            return None
        left = number - self.first_number
        position = self.counted_from
        for data in self._steps(position, min(self.end, position + WHOLE_BYTES)):
            line_ends = newlines(data)
            if line_ends >= left:
                place = 0
                for _ in range(left):
                    place = data.find(b"\n", place) + 1
                offset = position + place
                return offset if offset >= self.begin else None
            left -= line_ends
            position += len(data)
        return None


@dataclass(frozen=True, slots=True)
class JobLogs:
    """The logs of a job: their paths and their stored excerpts, by stream."""

    job: Job
    paths: Mapping[Stream, str]
    excerpts: Mapping[Stream, LogExcerpt]

    @property
    def streams(self) -> tuple[Stream, ...]:
        return tuple(stream for stream in Stream if stream in self.excerpts or stream in self.paths)


def logs_of(job: Job) -> JobLogs:
    """Return paths and stored excerpts of a job's logs, without opening any."""
    excerpts = {}
    for excerpt in LogExcerpt.objects.filter(harvest__job=job):
        excerpts[Stream(excerpt.stream)] = excerpt
    return JobLogs(job, dict(log_paths(job)), excerpts)


@contextmanager
def open_log_text(logs: JobLogs, stream: Stream) -> Iterator[LogText]:
    """Open a log of a job, or its stored excerpt if the log cannot be read now.

    Offsets in a compressed log refer to its text. Raises `NoLog`.
    """
    path = logs.paths.get(stream, "")
    excerpt = logs.excerpts.get(stream)
    with ExitStack() as stack:
        try:
            if not path:
                raise LogError("Log path unknown")
            # Workers fetch a log at a URL; a page does not wait for its server.
            if is_remote(path):
                raise LogError(f"{path} is read when the job ends")
            attempts = attempts_of(logs.job)
            file, part = stack.enter_context(open_own_log(logs.job, stream, path, attempts))
            descriptor = stack.enter_context(opened_text(file, part))
        except LogError as error:
            if excerpt is None:
                raise NoLog(_why_none(logs.job, error)) from None
            text = stack.enter_context(
                open_excerpt(excerpt, problem=f"{error}. Showing the stored excerpt.")
            )
        else:
            size = part.size_in(os.fstat(descriptor).st_size)
            text = LogText(descriptor, min(part.start, size), size, size)
        yield text


def _why_none(job: Job, error: LogError) -> str:
    """Return in sentences why a job has no log to show."""
    if job.started_at is None:
        return "The job never ran, so it wrote no log."
    was_read = LogHarvest.objects.filter(job=job, state=HarvestState.DONE).exists()
    return f"{error}.{' The excerpt that was kept of it has been deleted.' if was_read else ''}"


@contextmanager
def open_excerpt(excerpt: LogExcerpt, *, problem: str = "") -> Iterator[LogText]:
    """Write an excerpt at its offset in a sparse file in memory, to be read like the log."""
    data = excerpt.data
    with os.fdopen(os.memfd_create("excerpt"), "w+b") as file:
        file.seek(excerpt.first_offset)
        file.write(data)
        file.flush()
        yield LogText(
            file.fileno(),
            excerpt.first_offset,
            excerpt.first_offset + len(data),
            excerpt.size_bytes,
            excerpt.first_offset,
            excerpt.first_line_number,
            problem,
        )
