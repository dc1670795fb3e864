"""The sink that writes jobs as plain files, in the layout of SArchive.

The files are `DIR/<cluster>/<period>/job.<id>_script`, `…_environment`, and `…_description` if the
scheduler keeps one.
"""

import os
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import chain, count
from pathlib import Path
from typing import Self

from apps.archive.sinks.base import BadSink, SinkUnavailable, SinkURL
from capture.wire.entry import CapturedJob

PERIODS = {
    "daily": "{0.year:04}{0.month:02}{0.day:02}",
    "monthly": "{0.year:04}{0.month:02}",
    "yearly": "{0.year:04}",
}
NEW = ".new"  # directory of each cluster for unfinished files

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_JOBS_AT_ONCE = 100  # each holds up to three files open
_SYNCS_AT_ONCE = 8  # the file system commits these together
_LONGEST_NAME = 255
_LEFT_OVER_SECONDS = 3600
_DIRECTORY_MODE, _FILE_MODE = 0o750, 0o640
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_UNSAFE = re.compile(rb"[^A-Za-z0-9._+\[\]-]")


@dataclass(frozen=True, slots=True)
class _NewFile:
    """A file that has all its bytes but not its final name yet."""

    fd: int
    temporary: str
    kind: str


class _NameTaken(Exception):
    """The name of a file is taken by something that the sink did not write."""


class FilesSink:
    """Writes each job under its ID, or under ID and time of submission if the ID is taken.

    The modification time of a file is the job's time of submission, by which a repeated job is
    recognised. Files get their names once their bytes are on disk, and are never overwritten.
    """

    def __init__(self, directory: Path, period: str, host: str = "") -> None:
        self.name = f"files://{host}{directory}?period={period}"
        self._directory = directory
        self._period = PERIODS[period]
        self._made: set[str] = set()
        self._numbers = count()
        self._pool: ThreadPoolExecutor | None = None

    @classmethod
    def from_url(cls, url: SinkURL) -> Self:
        """Return the sink for `files:///DIR?period=daily|monthly|yearly`.

        With a host in the URL, workers of the queue `archive.files@HOST` write the files.
        """
        url.only("period")
        period = url.options.get("period", "daily")
        if period not in PERIODS:
            raise BadSink(f"the files sink has no period {period!r}, only: {', '.join(PERIODS)}")
        if len(url.hosts) > 1 or not url.path.startswith("/") or "\0" in url.path:
            raise BadSink("the files sink needs an absolute directory: files:///DIRECTORY")
        return cls(Path(os.path.normpath(url.path)), period, *url.hosts)

    def write(self, jobs: Sequence[CapturedJob]) -> Mapping[int, str]:
        """Write jobs; they are on disk when this returns.

        Raises `SinkUnavailable` for any error of the disk.
        """
        refused: dict[int, str] = {}
        try:
            for start in range(0, len(jobs), _JOBS_AT_ONCE):
                refused |= self._write(dict(enumerate(jobs[start : start + _JOBS_AT_ONCE], start)))
        except OSError as error:
            where = error.filename2 or error.filename or self._directory
            raise SinkUnavailable(
                f"{self._directory}: {where}: {error.strerror or error}"
            ) from error
        return refused

    def close(self) -> None:
        if self._pool:
            self._pool.shutdown()
            self._pool = None

    def _write(self, jobs: Mapping[int, CapturedJob]) -> dict[int, str]:
        refused = {}
        by_directory: dict[tuple[str, str], dict[int, CapturedJob]] = {}
        for number, job in jobs.items():
            longest = len(_stems(job)[1]) + len("_environment")
            if longest > _LONGEST_NAME:
                refused[number] = f"its ID makes a file name of {longest} bytes"
            else:
                place = (safe(job.cluster), self._period.format(job.submitted_at.astimezone(UTC)))
                by_directory.setdefault(place, {})[number] = job
        for (cluster, period), group in by_directory.items():
            with self._opened(cluster, period) as (temporary, final):
                refused |= self._write_into(temporary, final, group)
        return refused

    @contextmanager
    def _opened(self, cluster: str, period: str) -> Iterator[tuple[int, int]]:
        """Open the directories for new files and for the period, and create missing ones.

        A directory that existed before is not created again: its file system is not mounted.
        """
        if "" not in self._made:
            self._directory.mkdir(mode=_DIRECTORY_MODE, parents=True, exist_ok=True)
            self._made.add("")
        with (
            _closing(os.open(self._directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)) as root,
            _closing(self._directory_in(root, cluster, known=cluster in self._made)) as of_cluster,
            _closing(self._directory_in(of_cluster, NEW)) as temporary,
            _closing(self._directory_in(of_cluster, period)) as final,
        ):
            if cluster not in self._made:
                self._made.add(cluster)
                for name in os.listdir(temporary):  # left by a killed process
                    with suppress(OSError):
                        changed_at = os.stat(name, dir_fd=temporary, follow_symlinks=False).st_ctime
                        if time.time() - changed_at > _LEFT_OVER_SECONDS:
                            os.unlink(name, dir_fd=temporary)
            yield temporary, final

    def _directory_in(self, parent: int, name: str, *, known: bool = False) -> int:
        if not known:
            with suppress(FileExistsError):
                os.mkdir(name, _DIRECTORY_MODE, dir_fd=parent)
                os.fsync(parent)
        return os.open(name, _DIRECTORY, dir_fd=parent)

    def _write_into(
        self, temporary: int, final: int, jobs: Mapping[int, CapturedJob]
    ) -> dict[int, str]:
        refused: dict[int, str] = {}
        new: dict[int, list[_NewFile]] = {}
        try:
            for number, job in jobs.items():
                if not _has_all(final, job):
                    new[number] = []
                    for kind, content in _contents(job).items():
                        new[number].append(self._new_file(temporary, kind, content, job))
            self._pool = self._pool or ThreadPoolExecutor(
                _SYNCS_AT_ONCE, thread_name_prefix="fsync"
            )
            list(self._pool.map(os.fsync, [file.fd for file in chain.from_iterable(new.values())]))
            for number, files in new.items():
                try:
                    _name(temporary, final, files, jobs[number])
                except _NameTaken as error:
                    refused[number] = str(error)
            os.fsync(final)
        finally:
            for file in chain.from_iterable(new.values()):
                os.close(file.fd)
                with suppress(OSError):
                    os.unlink(file.temporary, dir_fd=temporary)
        return refused

    def _new_file(self, directory: int, kind: str, content: bytes, job: CapturedJob) -> _NewFile:
        name = f"{os.getpid()}-{id(self):x}-{next(self._numbers)}"
        fd = os.open(
            name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, _FILE_MODE, dir_fd=directory
        )
        try:
            unwritten = memoryview(content)
            while unwritten:
                unwritten = unwritten[os.write(fd, unwritten) :]
            os.utime(fd, ns=(_nanoseconds(job), _nanoseconds(job)))
        except BaseException:
            os.close(fd)
            os.unlink(name, dir_fd=directory)
            raise
        return _NewFile(fd, name, kind)


def safe(text: str) -> str:
    """Return a file name unique to this text: unsafe characters are quoted, such as `%2F`."""
    quoted = _UNSAFE.sub(
        lambda match: b"%%%02X" % ord(match[0]), text.encode("utf-8", "surrogatepass")
    ).decode()
    return f"%2E{quoted[1:]}" if quoted.startswith(".") else quoted


def _stems(job: CapturedJob) -> tuple[str, str]:
    """Return two prefixes for a job's files: the usual one, and one for an ID that is taken."""
    return (
        f"job.{safe(job.job_id)}",
        f"job.{safe(job.job_id)}~{job.submitted_at.astimezone(UTC):%Y%m%dT%H%M%S.%fZ}",
    )


def _contents(job: CapturedJob) -> dict[str, bytes]:
    """Return the contents by kind of file.

    The script, which shows whether a name is taken, comes first.
    """
    all_kinds = {
        "script": job.script,
        "environment": job.environment,
        "description": job.description,
    }
    return {
        kind: content for kind, content in all_kinds.items() if content or kind != "description"
    }


def _nanoseconds(job: CapturedJob) -> int:
    return (job.submitted_at - _EPOCH) // timedelta(microseconds=1) * 1000


def _has_all(directory: int, job: CapturedJob) -> bool:
    contents = _contents(job)
    return any(_has_files(directory, stem, job, contents) for stem in _stems(job))


def _has_files(directory: int, stem: str, job: CapturedJob, contents: Mapping[str, bytes]) -> bool:
    return all(
        _is_file_of(directory, f"{stem}_{kind}", job, content) for kind, content in contents.items()
    )


def _is_file_of(directory: int, name: str, job: CapturedJob, content: bytes) -> bool:
    """Return whether a file of this name belongs to the job, by time and size."""
    try:
        status = os.stat(name, dir_fd=directory, follow_symlinks=False)
    except FileNotFoundError:
        return False
    # Some file systems store only whole seconds.
    times = (_nanoseconds(job), _nanoseconds(job) // 10**9 * 10**9)
    return (status.st_mode & 0o170000, status.st_size) == (
        0o100000,
        len(content),
    ) and status.st_mtime_ns in times


def _name(temporary: int, final: int, files: Sequence[_NewFile], job: CapturedJob) -> None:
    """Give a job's files their names, all with the same prefix. Raises `_NameTaken`."""
    contents = _contents(job)
    for stem in _stems(job):
        for file in files:
            name = f"{stem}_{file.kind}"
            try:
                os.link(
                    file.temporary,
                    name,
                    src_dir_fd=temporary,
                    dst_dir_fd=final,
                    follow_symlinks=False,
                )
            except FileExistsError:
                if not _is_file_of(final, name, job, contents[file.kind]):
                    break
        else:
            return
    raise _NameTaken(f"{name} exists already and is not a file of this job")


@contextmanager
def _closing(fd: int) -> Iterator[int]:
    try:
        yield fd
    finally:
        os.close(fd)
