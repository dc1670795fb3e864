"""Read files with a time limit, because their servers may not respond."""

import os
import re
import threading
from concurrent.futures import Future
from pathlib import Path

from apps.clusters.schedulers.user_files import FileReader, NotNow, read_as

SECONDS = 2.0
# Each waits in a thread of its own.
MOST_HANGING = 200

_ESCAPED = re.compile(rb"\\([0-7]{3})")
_Read = tuple[bytes, os.stat_result]


class Patience:
    """Reads files in threads with a time limit.

    While a read hangs, no other starts on the same file system. The result of a late read is kept.
    """

    def __init__(self, *, seconds: float = SECONDS) -> None:
        self._seconds = seconds
        #: Account, path and result of hanging reads, by mount point.
        self._hanging: dict[Path, tuple[tuple[FileReader, Path], Future[_Read]]] = {}

    def read_as(self, account: FileReader, path: Path, *, max_bytes: int) -> _Read:
        """Call `user_files.read_as`. Raises `NotReadable`; `NotNow` if it takes too long."""
        if self._hanging and (late := self._late(account, path)):
            return late
        reading = _begin(account, path, max_bytes)
        try:
            return reading.result(self._seconds)
        except TimeoutError:
            self._hanging[_place_of(path)] = (account, path), reading
            raise NotNow("its file server does not answer") from None

    def _late(self, account: FileReader, path: Path) -> _Read | None:
        """Return the late result of an earlier read of this file.

        Raises `NotNow` while its file system hangs.
        """
        place = _place_of(path)
        if place not in self._hanging:
            if len(self._hanging) >= MOST_HANGING:
                self._forget_ended_reads()
            if len(self._hanging) >= MOST_HANGING:
                raise NotNow(
                    f"{MOST_HANGING} reads of other files wait for servers that do not answer"
                )
            return None

        earlier_read, reading = self._hanging[place]
        if not reading.done():
            raise NotNow("its file server does not answer")
        del self._hanging[place]
        if earlier_read != (account, path) or reading.exception():
            return None
        return reading.result()

    def _forget_ended_reads(self) -> None:
        for place, (_, reading) in list(self._hanging.items()):
            if reading.done():
                del self._hanging[place]


def _begin(account: FileReader, path: Path, max_bytes: int) -> Future[_Read]:
    """Read a file in a daemon thread."""
    reading: Future[_Read] = Future()

    def read() -> None:
        try:
            reading.set_result(read_as(account, path, max_bytes=max_bytes))
        except Exception as error:
            # Pass any error on to the waiting thread.
            reading.set_exception(error)

    threading.Thread(target=read, daemon=True, name=f"reads {path}").start()
    return reading


def _place_of(path: Path) -> Path:
    """Return the mount point of a path without accessing it.

    On the root file system, return the directory of the path.
    """
    try:
        lines = Path("/proc/self/mountinfo").read_bytes().splitlines()
    except OSError:
        lines = []
    mounted = set()
    for line in lines:
        mounted.add(_ESCAPED.sub(lambda match: bytes([int(match[1], 8)]), line.split(b" ")[4]))

    root = Path("/")
    mount_point = next(
        (directory for directory in (path, *path.parents) if os.fsencode(directory) in mounted),
        root,
    )
    return path.parent if mount_point == root else mount_point
