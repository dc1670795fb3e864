"""A journal of payloads: each is on disk before its sender is answered.

A payload leaves the journal when the database has it. Every process writes files of its own, with
one line per payload. Writers and readers lock the file, so that the files of a killed process are
read by another one. A last line without a newline was never answered.
"""

import errno
import fcntl
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

#: With less free space than this, payloads are rejected; the sender has to keep them.
LEAST_FREE_BYTES = 500_000_000


class AlertJournal:
    """The journal in a directory, shared by all processes of a host."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._writing = threading.Lock()
        self._syncing = threading.Lock()
        self._fd: int | None = None
        self._written = self._synced = 0

    def append(self, line: bytes) -> None:
        """Append a line and wait until it is on disk; waiting threads share one sync.

        Raises `OSError`.
        """
        with self._writing:
            try:
                _write(self._opened(), line + b"\n")
            except OSError:
                # Another line after half a line would be lost with it.
                self._close()
                raise
            self._written += 1
            mine = self._written
        with self._syncing:
            if self._synced < mine:
                self._sync()

    def end_file(self) -> None:
        """Complete the file that this process writes, so that a pump can read it.

        The next line starts a new file.
        """
        with self._syncing, self._writing:
            if self._fd is not None:
                os.fdatasync(self._fd)
                self._synced = self._written
                self._close()

    def ended_files(self) -> Iterator[Path]:
        """Yield complete files that no other process reads, oldest first, locked while in use."""
        for path in sorted(self.directory.glob("*.journal")):
            with suppress(FileNotFoundError), _locked(path) as alone:
                if alone:
                    yield path

    def _sync(self) -> None:
        with self._writing:
            fd = self._fd
            written = self._written
        if fd is None:
            # The file was closed after a failed write, so its content may not be on disk.
            raise OSError(errno.EIO, "the journal's file was closed")
        os.fdatasync(fd)
        self._synced = written

    def _opened(self) -> int:
        """Return the descriptor of the file that this process writes.

        A new file is locked before it is renamed to a name that readers look for.
        """
        if self._fd is None:
            self.directory.mkdir(parents=True, exist_ok=True)
            free = os.statvfs(self.directory)
            if free.f_bavail * free.f_frsize < LEAST_FREE_BYTES:
                raise OSError(errno.ENOSPC, "too little free space for the journal of payloads")
            name = f"{time.time_ns()}-{os.getpid()}"
            new = self.directory / f"{name}.new"
            fd = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o600)
            self._fd = fd
            fcntl.flock(fd, fcntl.LOCK_EX)
            new.rename(new.with_suffix(".journal"))
            _sync_directory(self.directory)
        return self._fd

    def _close(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None


def _write(fd: int, data: bytes) -> None:
    while data:
        data = data[os.write(fd, data) :]


def _sync_directory(directory: Path) -> None:
    fd = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


@contextmanager
def _locked(path: Path) -> Iterator[bool]:
    """Try to lock a file; yield whether that succeeded and the file still exists."""
    with path.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield path.exists()
