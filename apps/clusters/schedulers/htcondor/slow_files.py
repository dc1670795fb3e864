"""Reads files for which nobody can say when, or whether, their server answers: none is waited for longer than so."""

import os
import re
import threading
from pathlib import Path

from apps.clusters.schedulers.user_files import Account, NotNow, NotReadable, read_as

SECONDS = 2.0
MOST_HANGING = 200  # threads, each with a file that it waits for

_ESCAPED = re.compile(rb"\\([0-7]{3})")
_Read = tuple[bytes, os.stat_result]


class Patience:
    """Each read runs in a thread. While one hangs, no other of its file system is begun; what it gets late is kept."""

    def __init__(self, *, seconds: float = SECONDS) -> None:
        self._seconds = seconds
        self._hanging: dict[Path, _Reading] = {}  # by the place that does not answer

    def read_as(self, account: Account, path: Path, *, max_bytes: int) -> _Read:
        """Return what `files.read_as` does. Raises `NotReadable`, and `NotNow` where that takes too long."""
        if (late := self._late(account, path)) is not None:
            return late
        reading = _Reading(account, path, max_bytes)
        reading.start()
        reading.join(self._seconds)
        if reading.is_alive():
            self._hanging[_place_of(path)] = reading
            raise NotNow("its file server does not answer")
        return reading.outcome()

    def _late(self, account: Account, path: Path) -> _Read | None:
        """Return what an earlier read of the same file got after all. Raises `NotNow` where its place still hangs."""
        if not self._hanging:
            return None
        place = _place_of(path)
        hanging = self._hanging.get(place)
        if hanging is None:
            if len(self._hanging) >= MOST_HANGING:
                self._hanging = {place: each for place, each in self._hanging.items() if each.is_alive()}
            if len(self._hanging) >= MOST_HANGING:
                raise NotNow(f"{MOST_HANGING} reads of other files wait for servers that do not answer")
            return None
        if hanging.is_alive():
            raise NotNow("its file server does not answer")
        del self._hanging[place]
        return hanging.read if (hanging.account, hanging.path) == (account, path) else None


class _Reading(threading.Thread):
    def __init__(self, account: Account, path: Path, max_bytes: int) -> None:
        super().__init__(daemon=True, name=f"reads {path}")
        self.account = account
        self.path = path
        self.read: _Read | None = None
        self._max_bytes = max_bytes
        self._error: Exception = NotReadable("it was not read")

    def run(self) -> None:
        try:
            self.read = read_as(self.account, self.path, max_bytes=self._max_bytes)
        except Exception as error:  # for the thread that waits
            self._error = error

    def outcome(self) -> _Read:
        if self.read is None:
            raise self._error
        return self.read


def _place_of(path: Path) -> Path:
    """Return where the path's file system is mounted, without touching it.

    On the root's one it is the directory: there are the links to all others.
    """
    mounted = set(_mount_points())
    place = next((each for each in (path, *path.parents) if os.fsencode(each) in mounted), Path("/"))
    return path.parent if place == Path("/") else place


def _mount_points() -> list[bytes]:
    try:
        lines = Path("/proc/self/mountinfo").read_bytes().splitlines()
    except OSError:
        return []
    return [_ESCAPED.sub(lambda found: bytes([int(found[1], 8)]), line.split(b" ")[4]) for line in lines]
