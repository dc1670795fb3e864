"""Open the text of a job's log for reading at any byte.

The text comes from the file, from a decompressed copy, or from the stored excerpt.
"""

import os
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from apps.diagnosis.domain.reading.attempts import attempts_of, open_own_log
from apps.diagnosis.domain.reading.job_facts import log_paths
from apps.diagnosis.engine.evidence.secrets import starred_part
from apps.diagnosis.engine.formats.chunks import newlines
from apps.diagnosis.engine.logs.compressed import opened_text
from apps.diagnosis.engine.logs.remote import is_remote
from apps.diagnosis.engine.logs.tail import WHOLE_BYTES, LogError, LogPart
from apps.diagnosis.enums import HarvestState, Stream
from apps.diagnosis.models import LogExcerpt, LogHarvest
from apps.jobs.models import Job

_STEP = 1024 * 1024


class NoLog(Exception):
    """There is no log to read; the message gives the reason as a sentence."""


@dataclass(frozen=True, slots=True)
class LogText:
    """The text of a log: bytes [begin, end) of an open file.

    `problem` says why it is not the current log. `first_number` is the number of the line at
    `begin`, None if unknown.
    """

    descriptor: int
    begin: int
    end: int
    first_number: int | None = 1
    problem: str = ""

    def read(self, begin: int, end: int) -> bytes:
        """Return these bytes with secrets starred; fewer if the file has shrunk."""
        begin = max(begin, self.begin)
        return starred_part(self.descriptor, self._read(begin, end), begin)

    def _read(self, begin: int, end: int) -> bytes:
        """Return these bytes unchanged; fewer if the file has shrunk."""
        begin = max(begin, self.begin)
        end = min(end, self.end)
        parts = []
        while begin < end and (data := os.pread(self.descriptor, end - begin, begin)):
            parts.append(data)
            begin += len(data)
        return b"".join(parts)

    def line_start(self, offset: int, *, reach: int) -> int:
        """Return the start of the line that contains a byte, or the first byte within reach."""
        floor = max(self.begin, offset - reach)
        newline = self._read(floor, offset).rfind(b"\n")
        return floor + newline + 1 if newline >= 0 else floor

    def number_at(self, offset: int) -> int | None:
        """Return the number of the line that starts at a byte; None in a very large log."""
        if self.first_number is None or offset - self.begin > WHOLE_BYTES:
            return None
        number = self.first_number
        position = self.begin
        while position < offset and (data := self._read(position, min(position + _STEP, offset))):
            number += newlines(data)
            position += len(data)
        return number

    def offset_of(self, number: int) -> int | None:
        """Return the start of a line by its number.

        None if there is no such line, or if the log is too large to count.
        """
        if self.first_number is None or number < self.first_number:
            return None
        left = number - self.first_number
        position = self.begin
        while position < min(self.end, self.begin + WHOLE_BYTES) and (
            data := self._read(position, position + _STEP)
        ):
            line_ends = newlines(data)
            if line_ends >= left:
                place = 0
                for _ in range(left):
                    place = data.find(b"\n", place) + 1
                return position + place
            left -= line_ends
            position += len(data)
        return None


@contextmanager
def open_file_text(job: Job, stream: Stream, path: str) -> Iterator[tuple[int, LogPart]]:
    """Open the current log of a job; yield a descriptor of its text and the job's own part.

    Offsets in a compressed log refer to its text. A log at a URL is refused: it is fetched by
    workers, not for a page. Raises `LogError`.
    """
    if is_remote(path):
        raise LogError(f"{path} is read when the job ends")
    with (
        open_own_log(job, stream, path, attempts_of(job)) as (file, part),
        opened_text(file, part) as descriptor,
    ):
        yield descriptor, part


@contextmanager
def open_log_text(job: Job, stream: Stream) -> Iterator[LogText]:
    """Open a log of a job, or its stored excerpt if the log cannot be read now.

    Raises `NoLog`.
    """
    path = dict(log_paths(job)).get(stream, "")
    excerpt = LogExcerpt.objects.filter(harvest__job=job, stream=stream).first()
    with ExitStack() as stack:
        try:
            if not path:
                raise LogError("Log path unknown")
            descriptor, part = stack.enter_context(open_file_text(job, stream, path))
        except LogError as error:
            if excerpt is None:
                raise NoLog(_why_none(job, error)) from None
            text = stack.enter_context(
                _excerpt_text(excerpt, f"{error}. Showing the stored excerpt.")
            )
        else:
            size = part.size_in(os.fstat(descriptor).st_size)
            text = LogText(descriptor, min(part.start, size), size, 1 if part.start == 0 else None)
        yield text


def _why_none(job: Job, error: LogError) -> str:
    """Return in sentences why a job has no log to show."""
    if job.started_at is None:
        return "The job never ran, so it wrote no log."
    was_read = LogHarvest.objects.filter(job=job, state=HarvestState.DONE).exists()
    return f"{error}.{' The excerpt that was kept of it has been deleted.' if was_read else ''}"


@contextmanager
def _excerpt_text(excerpt: LogExcerpt, problem: str) -> Iterator[LogText]:
    """Write an excerpt at its offset in a sparse file, so that it can be read like the log."""
    data = excerpt.data
    with tempfile.TemporaryFile() as file:
        file.seek(excerpt.first_offset)
        file.write(data)
        file.flush()
        end = excerpt.first_offset + len(data)
        yield LogText(file.fileno(), excerpt.first_offset, end, excerpt.first_line_number, problem)
