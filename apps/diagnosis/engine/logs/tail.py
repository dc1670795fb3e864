"""Read a log of any size from its end, within a byte budget, and only if the job may read the file.

Nothing that a job controls is trusted: neither the path of its log, nor the file's type, owner or
hard links, nor that the file stays unchanged.
"""

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from apps.clusters.schedulers.user_files import READ, SEARCH, opened_directory, opened_file
from apps.diagnosis.engine.base import Block
from apps.diagnosis.engine.evidence.catalogue import text_of
from apps.diagnosis.engine.formats.chunks import newlines
from apps.diagnosis.engine.logs.access import LogAccess
from apps.diagnosis.enums import Refusal

STEP_BYTES = 64 * 1024
BUDGET_BYTES = 4 * 1024 * 1024
WHOLE_BYTES = 64 * 1024 * 1024
LINE_BYTES = 8 * 1024
OPEN_FILE = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


class LogError(Exception):
    """A log cannot be read; the message names the path and the reason."""


class LogMissing(LogError):
    """The file does not exist: not yet, or not any more."""


class LogOverwritten(LogMissing):
    """The file holds the log of another attempt of the job, or mixed lines of several attempts."""


class LogRefused(LogError):
    """The path must not be read.

    It is outside the roots, contains a symlink, or is not a regular file of the job.
    """

    def __init__(self, message: str, refusal: Refusal = Refusal.FILE) -> None:
        super().__init__(message)
        self.refusal = refusal


class LogUnreadable(LogError):
    """The file system failed or denied access; it may work later."""


@dataclass(frozen=True, slots=True)
class LogPart:
    """The bytes [start, end) of a file that are a job's log; an end of None is the end of file."""

    start: int = 0
    end: int | None = None

    def size_in(self, file_bytes: int) -> int:
        """Return the offset of the part's end in a file of this size."""
        return file_bytes if self.end is None else min(self.end, file_bytes)


WHOLE = LogPart()


@dataclass(frozen=True, slots=True)
class LogLine:
    """One line to show: its offset in the file, its number if known, and its text, cut at 8 kB."""

    offset: int
    number: int | None
    text: str


@contextmanager
def open_log(path: Path, access: LogAccess | None) -> Iterator[int]:
    """Open a regular file for reading and yield its descriptor. Raises `LogError`.

    With `access`, the path must be below one of its roots, no component below the root may be a
    symlink or `..`, and the job must be allowed to read the directories and the file. Without it,
    the path comes from an operator, not from a job.
    """
    try:
        with _opened(path, access) as descriptor:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise LogRefused(f"{path}: not a regular file")
            try:
                yield descriptor
            except OSError as error:
                raise LogUnreadable(f"{path}: {error.strerror}") from None
    except OSError as error:
        raise _log_error(path, error) from None


def _log_error(path: Path, error: OSError) -> LogError:
    if error.errno == errno.ENOENT:
        return LogMissing(f"{path}: no such file")
    if error.errno in {errno.ELOOP, errno.ENOTDIR}:
        return LogRefused(f"{path}: path contains a symlink, or a file used as a directory")
    if error.errno in {errno.ENXIO, errno.ENODEV}:
        return LogRefused(f"{path}: not a regular file")
    needs = ""
    if error.errno == errno.EACCES:
        needs = "; the worker needs the right to read it: see docs/production.md"
    return LogUnreadable(f"{path}: {error.strerror}{needs}")


@contextmanager
def _opened(path: Path, access: LogAccess | None) -> Iterator[int]:
    """Open an operator's file directly, a job's file below its root.

    A job's path cannot lead out of the root.
    """
    if access is None:
        descriptor = os.open(path, OPEN_FILE)
        try:
            yield descriptor
        finally:
            os.close(descriptor)
        return
    root, parts = _split(path, access.roots)

    def check_directory(descriptor: int, directory: Path) -> None:
        if access.reader and not access.reader.may(descriptor, SEARCH):
            raise LogRefused(
                f"{path}: the job's user {access.user} may not search directory {directory}",
                Refusal.RIGHTS,
            )
        below = directory != root and directory.is_relative_to(root)
        if below and (problem := access.directory_problem(os.fstat(descriptor))):
            raise LogRefused(f"{path}: directory {directory} {problem}")

    def check_file(handle: int) -> None:
        _check_file(path, access, os.fstat(handle))
        if access.reader and not access.reader.may(handle, READ):
            raise LogRefused(
                f"{path}: the job's user {access.user} may not read it", Refusal.RIGHTS
            )

    with (
        opened_directory(root.joinpath(*parts[:-1]), check_directory) as directory,
        opened_file(directory, path.name, check_file) as descriptor,
    ):
        # A hard link removed after opening no longer counts: the file must still have this name.
        named = os.stat(path.name, dir_fd=directory, follow_symlinks=False)
        if not os.path.samestat(named, os.fstat(descriptor)):
            raise LogUnreadable(f"{path}: replaced while it was opened")
        _check_file(path, access, named)
        yield descriptor


def _check_file(path: Path, access: LogAccess, status: os.stat_result) -> None:
    if problem := access.file_problem(status):
        raise LogRefused(f"{path}: {problem}")
    if problem := access.owner_problem(status):
        raise LogRefused(f"{path}: {problem}", Refusal.OWNER)


def _split(path: Path, roots: tuple[Path, ...]) -> tuple[Path, tuple[str, ...]]:
    """Return the root that holds `path`, without symlinks, and the names below it."""
    if "\x00" in str(path):
        raise LogRefused(f"{str(path)!r}: NUL byte in the path")
    if not path.is_absolute() or ".." in path.parts:
        raise LogRefused(f"{path}: not an absolute path without '..'")
    for root in roots:
        real = Path(os.path.realpath(root))
        for spelling in (root, real):
            if path != spelling and path.is_relative_to(spelling):
                return real, path.relative_to(spelling).parts
    raise LogRefused(f"{path}: outside the allowed log directories", Refusal.ROOTS)


def read_back(
    descriptor: int,
    part: LogPart = WHOLE,
    *,
    end: int | None = None,
    lines: int | None = None,
    budget_bytes: int = BUDGET_BYTES,
) -> Block:
    """Read whole lines of a part backwards from `end` until `lines` or the budget is reached.

    `end` defaults to the end of the part. A first line cut by the budget is left out, unless it is
    the only one. If the file shrinks meanwhile, the remaining part is returned.
    """
    size = part.size_in(os.fstat(descriptor).st_size)
    stop = size if end is None else max(part.start, min(end, size))
    floor = max(part.start, stop - budget_bytes)
    steps: list[bytes] = []
    start = stop
    seen = 0
    # Without a number of lines, the whole budget is read at once, so that memory holds it once.
    step = STEP_BYTES if lines is not None else budget_bytes
    while start > floor and (lines is None or seen <= lines):
        begin = max(floor, start - step)
        data = _pread(descriptor, begin, start)
        # The file was truncated: the data read after this offset is gone.
        if len(data) < start - begin:
            steps = []
            seen = 0
            stop = begin + len(data)
        steps.append(data)
        seen += newlines(data)
        start = begin
    whole = b"".join(reversed(steps))
    skip = _front(whole, at_start=start == part.start, lines=lines)
    offset = start + skip
    return Block(
        whole[skip:], offset, size, _line_number(descriptor, offset, size), begin=part.start
    )


def _pread(descriptor: int, begin: int, end: int) -> bytes:
    parts = []
    while begin < end and (data := os.pread(descriptor, end - begin, begin)):
        parts.append(data)
        begin += len(data)
    return b"".join(parts)


def _front(data: bytes, *, at_start: bool, lines: int | None) -> int:
    """Return the offset in `data` of the first whole line to return."""
    skip = 0 if at_start else data.find(b"\n") + 1
    if skip == len(data):
        skip = 0
    if lines is None:
        return skip
    position = len(data) - data.endswith(b"\n")
    for _ in range(lines):
        position = data.rfind(b"\n", 0, position)
        if position < skip:
            return skip
    return position + 1


def _line_number(descriptor: int, offset: int, size: int) -> int | None:
    """Return the line number at `offset`; None if the file is too large to count."""
    if size > WHOLE_BYTES:
        return None
    count = 1
    position = 0
    while position < offset and (
        data := os.pread(descriptor, min(1024 * 1024, offset - position), position)
    ):
        count += newlines(data)
        position += len(data)
    return count


def lines_of(block: Block) -> list[LogLine]:
    """Return the lines of a block as text."""
    lines = []
    offset = block.offset
    pieces = block.data.split(b"\n")
    if pieces[-1] == b"":
        pieces.pop()
    for index, piece in enumerate(pieces):
        number = None if block.first_line is None else block.first_line + index
        lines.append(LogLine(offset, number, _display_text(piece)))
        offset += len(piece) + 1
    return lines


def _display_text(line: bytes) -> str:
    line = line.rstrip(b"\r")
    if len(line) <= LINE_BYTES:
        return text_of(line)
    return text_of(line[:LINE_BYTES]) + f" … {len(line) - LINE_BYTES:,} bytes more"
