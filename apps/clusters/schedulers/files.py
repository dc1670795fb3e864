"""Files of a spool, read without trust: no symlink is followed, nothing but a regular file of a sane size is read."""

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

MAX_FILE_BYTES = 64 * 1024 * 1024  # capture holds whole files in memory

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_GONE = {errno.ENOENT, errno.ESTALE}
_REFUSED = {errno.ELOOP, errno.ENOTDIR, errno.EISDIR, errno.EACCES, errno.EPERM, errno.ENXIO}


class DirectorySpool:
    """A spool in `directory` and its subdirectories of certain names, each watched flat; jobs are files in them."""

    scheduler: str
    subdirectory: re.Pattern[str]

    def __init__(self, directory: Path) -> None:
        """Raises `SpoolError` where `directory` is none, or may not be read."""
        self.directory = directory
        self._subdirectories()

    def watched(self) -> list[Path]:
        """Return the root, and every subdirectory that there is now; the scheduler may make them later."""
        return [self.directory, *(self.directory / name for name in self._subdirectories())]

    def scan(self) -> Iterator[SpoolEntry]:
        """List every job entry. Raises `SpoolError` at the end, after all that could be listed."""
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
        """Return the directories with jobs, each by the names that lead to it."""
        raise NotImplementedError

    def listed(self, directory: Path, names: Collection[str]) -> Iterator[SpoolEntry]:
        """Return the entries among the names in a directory."""
        raise NotImplementedError

    def is_index(self, path: Path) -> bool:
        """There is no list of jobs beside their files."""
        return False

    def identity(self, entry: SpoolEntry) -> Identity:
        return identity_of(entry.path)

    def _subdirectories(self, *, any_type: bool = False) -> list[str]:
        """Return the names that fit, in order; of directories alone, or of any type. Raises `SpoolError`."""
        try:
            with os.scandir(self.directory) as entries:
                return sorted(
                    entry.name
                    for entry in entries
                    if self.subdirectory.fullmatch(entry.name) and (any_type or entry.is_dir(follow_symlinks=False))
                )
        except OSError as error:
            raise SpoolError(f"{self.directory}: no {self.scheduler} spool: {error.strerror}") from error


@contextmanager
def opened_directory(root: Path, *names: str) -> Iterator[int]:
    """Open a directory below `root` name by name, so that no symlink on the way is followed. Raises `SpoolError`."""
    descriptors: list[int] = []
    try:
        try:
            if names:
                descriptors.append(os.open(f"{root}/{names[0]}", _DIRECTORY | os.O_NOFOLLOW))
            else:
                descriptors.append(os.open(root, _DIRECTORY))
            for name in names[1:]:
                descriptors.append(os.open(name, _DIRECTORY | os.O_NOFOLLOW, dir_fd=descriptors[-1]))
        except OSError as error:
            raise spool_error(root.joinpath(*names[: len(descriptors) + 1]), error) from error
        yield descriptors[-1]
    finally:
        for descriptor in descriptors:
            os.close(descriptor)


def read_file(directory: int, path: Path | str, *, max_bytes: int = MAX_FILE_BYTES) -> tuple[bytes, datetime]:
    """Return the bytes of `path`, which lies in the open `directory`, and when it was written last.

    Raises `EntryVanished` where there is none, `EntryUnreadable` for what is no regular file, or larger.
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
    """Say what an error of the system means for the entry at `path`."""
    if error.errno in _GONE:
        return EntryVanished(f"{path}: removed by the scheduler")
    if error.errno in _REFUSED:
        return EntryUnreadable(f"{path}: {error.strerror}")
    return SpoolError(f"{path}: {error.strerror}")
