"""Parse the schedd's history: ads of jobs that left the queue, each followed by a line `*** …`.

Files are read from the end, because the newest jobs are needed. An incomplete last ad is left for
the next run.
"""

import os
import re
from collections.abc import Generator, Iterator
from datetime import datetime
from pathlib import Path
from typing import BinaryIO

from apps.clusters.schedulers.base import SchedulerError
from apps.clusters.schedulers.htcondor.classads import Ad, read_ad

_BANNER = b"*** "
_JOB_BANNER = re.compile(
    rb"\*\*\* Offset = .* CompletionDate = (-?\d+)(?: CurrentTime = (\d+))?\s*"
)
_ROTATED = re.compile(r"\.\d{8}T\d{6}")
_PER_JOB = re.compile(r"history\..+")
#: The year 2242. Later times are in another unit than seconds; their ads are read to be flagged.
_NO_TIME = 2**33
_BLOCK_BYTES = 256 * 1024
_MOST_AD_BYTES = 16 * 1024 * 1024


def ads_in_history(path: Path, *, since: datetime, until: datetime) -> Iterator[Ad]:
    """Yield the ads of jobs that may have ended in [since, until), from `path` and rotated files.

    Raises `SchedulerError` if a file cannot be read.
    """
    path = path / "history" if path.is_dir() else path
    try:
        with path.open("rb") as file:
            if (yield from _ads_backwards(file, since, until)):
                return
        beside = path.parent.iterdir()
        newest_first = sorted(
            (
                file_path
                for file_path in beside
                if file_path.stem == path.name and _ROTATED.fullmatch(file_path.suffix)
            ),
            reverse=True,
        )
        for rotated in newest_first:
            if rotated.stat().st_mtime < since.timestamp():
                return
            with rotated.open("rb") as file:
                if (yield from _ads_backwards(file, since, until)):
                    return
    except OSError as error:
        raise SchedulerError(f"{error.filename or path}: {error.strerror}") from error


def ads_of_jobs(directory: Path, *, since: datetime) -> Iterator[Ad]:
    """Yield the ads in a directory with one file per job, if written at or after `since`.

    Raises `SchedulerError` if a file cannot be read.
    """
    try:
        with os.scandir(directory) as entries:
            paths = []
            for entry in entries:
                if (
                    _PER_JOB.fullmatch(entry.name)
                    and entry.is_file(follow_symlinks=False)
                    and entry.stat(follow_symlinks=False).st_mtime >= since.timestamp()
                ):
                    paths.append(Path(entry.path))
        for path in sorted(paths):
            yield read_ad(path.read_bytes().splitlines())
    except OSError as error:
        raise SchedulerError(f"{error.filename or directory}: {error.strerror}") from error


def _ads_backwards(file: BinaryIO, since: datetime, until: datetime) -> Generator[Ad, None, bool]:
    """Yield the candidate ads of a file; return whether all earlier ads are older than `since`."""
    first = int(since.timestamp())
    last = until.timestamp()
    lines: list[bytes] = []
    is_candidate = False
    for line in _lines_backwards(file):
        if not line.startswith(_BANNER):
            if is_candidate:
                lines.append(line)
            continue

        if is_candidate:
            yield read_ad(reversed(lines))
        banner = _JOB_BANNER.fullmatch(line)
        if banner and banner[2] and int(banner[2]) < first:
            return True
        # The ad was written before the period, so its job and all earlier ones ended before it.
        completed = int(banner[1]) if banner else -1
        # A removed job has no completion date in the banner; its ad has the time.
        in_time = completed <= 0 or first <= completed < last or completed > _NO_TIME
        is_candidate = banner is not None and in_time
        lines = []

    if is_candidate:
        yield read_ad(reversed(lines))
    return False


def _lines_backwards(file: BinaryIO) -> Iterator[bytes]:
    """Yield the complete lines of a file, last line first."""
    position = file.seek(0, os.SEEK_END)
    line_end = b""
    is_last = True
    while position > 0:
        size = min(_BLOCK_BYTES, position)
        position -= size
        file.seek(position)
        first, *lines = (file.read(size) + line_end).split(b"\n")
        if is_last and lines:
            lines.pop()
            is_last = False
        yield from reversed(lines)
        line_end = first[:_MOST_AD_BYTES]

    if line_end and not is_last:
        yield line_end
