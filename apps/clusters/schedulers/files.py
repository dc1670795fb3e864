"""Read untrusted spool files: only regular files of limited size, without following symlinks."""

import errno
import os
import re
import stat
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

from apps.clusters.schedulers.base import (
    EntryUnreadable,
    EntryVanished,
    Identity,
    SpoolEntry,
    SpoolError,
    identity_of,
)

# Capture holds whole files in memory.
MAX_FILE_BYTES = 64 * 1024 * 1024

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_GONE = {errno.ENOENT, errno.ESTALE}
_REFUSED = {errno.ELOOP, errno.ENOTDIR, errno.EISDIR, errno.EACCES, errno.EPERM, errno.ENXIO}


class DirectorySpool:
    """A spool with jobs as files in `directory` or its subdirectories; all are watched."""

    scheduler: str
    subdirectory: re.Pattern[str]

    def __init__(self, directory: Path) -> None:
        """Raise `SpoolError` if `directory` does not exist or cannot be read."""
        self.directory = directory
        self._subdirectories()

    def watched(self) -> list[Path]:
        """Return the root and the existing subdirectories; the scheduler may create more later."""
        return [self.directory, *(self.directory / name for name in self._subdirectories())]

    def scan(self) -> Iterator[SpoolEntry]:
        """Yield every job entry. Raises `SpoolError` after all readable entries."""
        failures = []
        for names in self.scanned():
            try:
                with opened_directory(self.directory, *names) as descriptor:
                    listed = os.listdir(descriptor)
            except EntryVanished:
                continue
            except SpoolError as error:
                failures.append(str(error))
                continue
            yield from self.listed(self.directory.joinpath(*names), listed)
        if failures:
            raise SpoolError("; ".join(failures))

    def scanned(self) -> Iterable[tuple[str, ...]]:
        """Return the directories that contain jobs, as path components relative to the root."""
        raise NotImplementedError

    def listed(self, directory: Path, names: Collection[str]) -> Iterator[SpoolEntry]:
        """Yield the entries among the names in a directory."""
        raise NotImplementedError

    def is_index(self, path: Path) -> bool:
        """Return False: this spool has no list of jobs besides the files."""
        return False

    def identity(self, entry: SpoolEntry) -> Identity:
        return identity_of(entry.path)

    def _subdirectories(self, *, any_type: bool = False) -> list[str]:
        """Return the matching names, sorted; only directories unless `any_type`.

        Raises `SpoolError`.
        """
        try:
            with os.scandir(self.directory) as entries:
                subdirectories = []
                for entry in entries:
                    if self.subdirectory.fullmatch(entry.name) and (
                        any_type or entry.is_dir(follow_symlinks=False)
                    ):
                        subdirectories.append(entry.name)
                return sorted(subdirectories)
        except OSError as error:
            raise SpoolError(
                f"{self.directory}: no {self.scheduler} spool: {error.strerror}"
            ) from error


@contextmanager
def opened_directory(root: Path, *names: str) -> Iterator[int]:
    """Open a directory below `root` component by component, without following symlinks.

    Raises `SpoolError`.
    """
    descriptors: list[int] = []
    try:
        try:
            if names:
                descriptors.append(os.open(f"{root}/{names[0]}", _DIRECTORY | os.O_NOFOLLOW))
            else:
                descriptors.append(os.open(root, _DIRECTORY))
            for name in names[1:]:
                descriptors.append(
                    os.open(name, _DIRECTORY | os.O_NOFOLLOW, dir_fd=descriptors[-1])
                )
        except OSError as error:
            raise spool_error(root.joinpath(*names[: len(descriptors) + 1]), error) from error
        yield descriptors[-1]
    finally:
        for descriptor in descriptors:
            os.close(descriptor)


def read_file(
    directory: int, path: Path | str, *, max_bytes: int = MAX_FILE_BYTES
) -> tuple[bytes, datetime]:
    """Return the content of a file in the open `directory`, and its modification time.

    Raises `EntryVanished`, or `EntryUnreadable` if it is not a regular file or too large.
    """
    try:
        descriptor = os.open(str(path).rpartition("/")[2], _FILE, dir_fd=directory)
        try:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise EntryUnreadable(f"{path}: not a regular file")
            if status.st_size > max_bytes:
                raise EntryUnreadable(f"{path}: {status.st_size} bytes, more than {max_bytes}")
            content = os.read(descriptor, status.st_size)
            return content, _EPOCH + timedelta(microseconds=status.st_mtime_ns // 1000)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise spool_error(path, error) from error


def spool_error(path: Path | str, error: OSError) -> SpoolError:
    """Return the spool error for a system error at `path`."""
    if error.errno in _GONE:
        return EntryVanished(f"{path}: removed by the scheduler")
    if error.errno in _REFUSED:
        return EntryUnreadable(f"{path}: {error.strerror}")
    return SpoolError(f"{path}: {error.strerror}")
