"""Slurm's spool: StateSaveLocation/hash.N/job.ID/{environment,script}, as slurmctld writes it.

The files appear under their final names and grow in place, so each is read whole and judged by its own format:
a script is complete when its last byte is NUL, an environment when it holds as many NULs as its count says.
"""

import errno
import os
import re
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from apps.clusters.schedulers.base import (
    EntryIncomplete,
    EntryUnreadable,
    EntryVanished,
    Identity,
    SpooledJob,
    SpoolEntry,
    SpoolError,
    identity_of,
)
from apps.clusters.schedulers.environment import COUNT, name_and_value, texts_in

MAX_FILE_BYTES = 64 * 1024 * 1024  # Slurm's own limit is 4 MB unless max_script_size is set; capture holds it in memory

_HASH_DIRECTORY = re.compile(r"hash\.[0-9]")
_JOB_DIRECTORY = re.compile(r"job\.([1-9][0-9]*)")
_JOB_FILES = {"script", "environment"}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_GONE = {errno.ENOENT, errno.ESTALE}
_REFUSED = {errno.ELOOP, errno.ENOTDIR, errno.EISDIR, errno.EACCES, errno.EPERM, errno.ENXIO}


class SlurmSpool:
    """The spool at `directory`, slurmctld's StateSaveLocation, on this host."""

    def __init__(self, directory: Path, *, max_file_bytes: int = MAX_FILE_BYTES) -> None:
        """Raises `SpoolError` where `directory` is none, or may not be read."""
        self.directory = directory
        self.max_file_bytes = max_file_bytes
        try:
            os.listdir(directory)
        except OSError as error:
            raise SpoolError(f"{directory}: no Slurm spool: {error.strerror}") from error

    def watched(self) -> list[Path]:
        """Return the root and every `hash.N` there is; Slurm makes each when the first job needs it."""
        return [self.directory, *(self.directory / name for name in self._hash_directories())]

    def scan(self) -> Iterator[SpoolEntry]:
        """List every job entry. Raises `SpoolError` at the end, after all that could be listed."""
        failures = []
        for name in self._hash_directories():
            try:
                names = self._list_hash_directory(name)
            except EntryVanished:
                continue
            except SpoolError as error:
                failures.append(str(error))
                continue
            for job in filter(None, map(_JOB_DIRECTORY.fullmatch, names)):
                yield SpoolEntry(job_id=job[1], path=self.directory / name / job[0])
        if failures:
            raise SpoolError("; ".join(failures))

    def entry_at(self, path: Path) -> SpoolEntry | None:
        """Return the entry of a job directory, or of a file in it."""
        try:
            parts = path.relative_to(self.directory).parts
        except ValueError:
            return None
        if len(parts) not in (2, 3) or not _HASH_DIRECTORY.fullmatch(parts[0]) or not _JOB_FILES.issuperset(parts[2:]):
            return None
        job = _JOB_DIRECTORY.fullmatch(parts[1])
        return SpoolEntry(job_id=job[1], path=self.directory.joinpath(*parts[:2])) if job else None

    def is_index(self, path: Path) -> bool:
        """Slurm has no list of jobs beside their directories."""
        return False

    def identity(self, entry: SpoolEntry) -> Identity:
        """Return inode and modification time of the job's directory."""
        return identity_of(entry.path)

    def read(self, entry: SpoolEntry) -> SpooledJob:
        """Read script and environment into memory; both come from one and the same directory."""
        if self.entry_at(entry.path) != entry:
            raise EntryUnreadable(f"{entry.path}: not a job of {self.directory}")
        with self._opened(entry.path.parent.name, entry.path.name) as directory:
            environment, _ = self._read_file(directory, entry.path / "environment")
            script, modified_ns = self._read_file(directory, entry.path / "script")
        if not script.endswith(b"\0"):
            raise EntryIncomplete(f"{entry.path}/script: not written to its end yet")
        return SpooledJob(
            job_id=entry.job_id,
            submitted_at=_EPOCH + timedelta(microseconds=modified_ns // 1000),
            script=script[:-1],
            environment=environment,
            variables=tuple(map(name_and_value, _split_environment(environment, entry.path / "environment"))),
        )

    def with_environment(self, job: SpooledJob, variables: Iterable[tuple[bytes, bytes]]) -> SpooledJob:
        """Return `job` with other variables. An entry that was there without `=` stays without."""
        pairs = tuple(variables)
        bare = {text for text in texts_in(job.environment) if b"=" not in text}
        texts = [name if name in bare and not value else name + b"=" + value for name, value in pairs]
        if any(b"\0" in text for text in texts):
            raise ValueError("a variable holds a NUL")
        environment = COUNT.pack(len(texts)) + b"".join(text + b"\0" for text in texts)
        return replace(job, environment=environment, variables=pairs)

    def _hash_directories(self) -> list[str]:
        try:
            with os.scandir(self.directory) as entries:
                return sorted(
                    entry.name
                    for entry in entries
                    if _HASH_DIRECTORY.fullmatch(entry.name) and entry.is_dir(follow_symlinks=False)
                )
        except OSError as error:
            raise SpoolError(f"{self.directory}: {error.strerror}") from error

    def _list_hash_directory(self, name: str) -> list[str]:
        with self._opened(name) as directory:
            return os.listdir(directory)

    @contextmanager
    def _opened(self, *names: str) -> Iterator[int]:
        """Open a directory below the root name by name, so that no symlink on the way is followed."""
        descriptors = []
        path = self.directory
        try:
            try:
                descriptors.append(os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
                for name in names:
                    path = path / name
                    descriptors.append(os.open(name, _DIRECTORY, dir_fd=descriptors[-1]))
            except OSError as error:
                raise _spool_error(path, error) from error
            yield descriptors[-1]
        finally:
            for descriptor in descriptors:
                os.close(descriptor)

    def _read_file(self, directory: int, path: Path) -> tuple[bytes, int]:
        """Return the bytes of a regular file in an open job directory, and its modification time in ns."""
        try:
            descriptor = os.open(path.name, _FILE, dir_fd=directory)
        except FileNotFoundError as error:
            if os.fstat(directory).st_nlink == 0:
                raise EntryVanished(f"{path}: removed by the scheduler") from error
            raise EntryIncomplete(f"{path}: not there yet") from error
        except OSError as error:
            raise _spool_error(path, error) from error
        try:
            return self._read_whole(descriptor, path), os.fstat(descriptor).st_mtime_ns
        except OSError as error:
            raise _spool_error(path, error) from error
        finally:
            os.close(descriptor)

    def _read_whole(self, descriptor: int, path: Path) -> bytes:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise EntryUnreadable(f"{path}: not a regular file")
        if status.st_size > self.max_file_bytes:
            raise EntryUnreadable(f"{path}: {status.st_size} bytes, more than {self.max_file_bytes}")
        with open(descriptor, "rb", closefd=False) as file:
            return file.read(status.st_size)


def _split_environment(content: bytes, path: Path) -> list[bytes]:
    if len(content) < COUNT.size:
        raise EntryIncomplete(f"{path}: its count is not written yet")
    (count,) = COUNT.unpack_from(content)
    texts = texts_in(content)
    if len(texts) < count:
        raise EntryIncomplete(f"{path}: {len(texts)} of {count} variables written")
    return texts[:count]


def _spool_error(path: Path, error: OSError) -> SpoolError:
    if error.errno in _GONE:
        return EntryVanished(f"{path}: removed by the scheduler")
    if error.errno in _REFUSED:
        return EntryUnreadable(f"{path}: {error.strerror}")
    return SpoolError(f"{path}: {error.strerror}")
