"""Files of a spool, read without trust: no symlink is followed, nothing but a regular file of a sane size is read."""

import errno
import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

from apps.clusters.schedulers.base import EntryUnreadable, EntryVanished, SpoolError

MAX_FILE_BYTES = 64 * 1024 * 1024  # capture holds whole files in memory

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_GONE = {errno.ENOENT, errno.ESTALE}
_REFUSED = {errno.ELOOP, errno.ENOTDIR, errno.EISDIR, errno.EACCES, errno.EPERM, errno.ENXIO}


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


def subdirectories(root: Path, pattern: re.Pattern[str]) -> list[str]:
    """Return the names of the directories in `root` that fit `pattern`, in order; links are none. Raises `OSError`."""
    with os.scandir(root) as entries:
        return sorted(
            entry.name for entry in entries if pattern.fullmatch(entry.name) and entry.is_dir(follow_symlinks=False)
        )


def read_file(directory: int, path: Path, *, max_bytes: int = MAX_FILE_BYTES) -> tuple[bytes, datetime]:
    """Return the bytes of `path`, which lies in the open `directory`, and when it was written last. Raises as below."""
    return read_file_in(directory, path.parent, path.name, max_bytes=max_bytes)


def read_file_in(directory: int, parent: Path, name: str, *, max_bytes: int) -> tuple[bytes, datetime]:
    """Return the bytes of a file in the open `directory`, which is `parent`, and when it was written last.

    Raises `EntryVanished` where there is none, `EntryUnreadable` for what is no regular file, or larger.
    """
    try:
        descriptor = os.open(name, _FILE, dir_fd=directory)
        try:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise EntryUnreadable(f"{parent / name}: not a regular file")
            if status.st_size > max_bytes:
                raise EntryUnreadable(f"{parent / name}: {status.st_size} bytes, more than {max_bytes}")
            content = os.read(descriptor, status.st_size)
            return content, _EPOCH + timedelta(microseconds=status.st_mtime_ns // 1000)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise spool_error(parent / name, error) from error


def spool_error(path: Path, error: OSError) -> SpoolError:
    """Say what an error of the system means for the entry at `path`."""
    if error.errno in _GONE:
        return EntryVanished(f"{path}: removed by the scheduler")
    if error.errno in _REFUSED:
        return EntryUnreadable(f"{path}: {error.strerror}")
    return SpoolError(f"{path}: {error.strerror}")
