"""Local copies of files of an object store, by their checksums; the longest unused go first.

Any number of processes may use one directory, and any of them may be killed. It needs no settings.
"""

import fcntl
import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from apps.jobs.domain.months.stores.base import sha256_of


class NotCached(Exception):
    """A file is not in the cache, perhaps no longer."""


class WrongContent(Exception):
    """A file is not what its checksum says."""


#: How long a file counts as in use after its last use: someone may still be reading it.
IN_USE_SECONDS = 30.0


@dataclass(frozen=True)
class FileCache:
    """A directory of files that takes up to `max_bytes`, without those that are in use."""

    directory: Path
    max_bytes: int

    @contextmanager
    def held(self, digests: Iterable[str]) -> Iterator[list[Path]]:
        """Yield the files with these checksums, which nobody removes meanwhile.

        Raises `NotCached`.
        """
        with ExitStack() as locks:
            paths = []
            for digest in digests:
                path = self._path(digest)
                try:
                    file = locks.enter_context(path.open("rb"))
                except FileNotFoundError:
                    raise NotCached(digest) from None
                fcntl.flock(file, fcntl.LOCK_SH)
                if not _is_at(file, path):
                    raise NotCached(digest)
                os.utime(path)
                paths.append(path)
            yield paths

    def has(self, digest: str) -> bool:
        return self._path(digest).exists()

    def fill(self, digest: str, size: int, download: Callable[[BinaryIO], None]) -> None:
        """Have the file with this checksum and size in the cache.

        `download` appends what is missing: what a killed process got is kept. Others wait for the
        one who downloads. Raises `WrongContent`.
        """
        path = self._path(digest)
        if path.exists():
            os.utime(path)
            return
        self.directory.mkdir(parents=True, mode=0o700, exist_ok=True)
        part = path.with_suffix(".part")
        with _locked(part) as file:
            if path.exists():
                part.unlink()
                return
            has = file.seek(0, os.SEEK_END)
            if has > size:
                file.truncate(0)
            self._make_room(size - has)
            download(file)
            file.flush()
            os.fsync(file.fileno())
            if sha256_of(part) != digest:
                part.unlink()
                raise WrongContent(digest)
            part.rename(path)

    def drop_damaged(self, digest: str) -> None:
        """Remove a file whose content no longer has its checksum."""
        with suppress(FileNotFoundError):
            if sha256_of(self._path(digest)) != digest:
                self._path(digest).unlink()

    def _path(self, digest: str) -> Path:
        return self.directory / f"{digest}.parquet"

    def _make_room(self, size: int) -> None:
        """Remove files that are not in use until as many bytes more are within the limit."""
        entries = []
        for path in self.directory.iterdir():
            with suppress(FileNotFoundError):
                status = path.stat()
                entries.append((status.st_mtime, status.st_size, path))
        used = sum(entry_size for _, entry_size, _ in entries)
        in_use_since = time.time() - IN_USE_SECONDS
        for used_at, entry_size, path in sorted(entries):
            if used + size <= self.max_bytes or used_at > in_use_since:
                return
            if _remove_unused(path):
                used -= entry_size


@contextmanager
def _locked(path: Path) -> Iterator[BinaryIO]:
    """Open a file to append to, and hold it alone."""
    while True:
        with path.open("ab") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            # Whoever held it before may have renamed or removed it.
            if _is_at(file, path):
                yield file
                return


def _is_at(file: BinaryIO, path: Path) -> bool:
    """Return whether an open file is still the one of this path."""
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False


def _remove_unused(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            path.unlink()
    except FileNotFoundError:
        return True
    except BlockingIOError:
        return False
    return True
