"""File events of the spool: watches each of its directories flat and says which entries they are about."""

import logging
import queue
import time
from collections.abc import Callable
from pathlib import Path

from apps.archive.capture.inotify import FileEvent, Inotify
from apps.archive.capture.queues import WaitingEntries
from apps.clusters.schedulers.base import Spool, identity_of

logger = logging.getLogger(__name__)


class Watcher:
    """Adds to `waiting` what events name. Where events may have been lost, `rescan` is called instead.

    One thread follows, another may refresh.
    """

    def __init__(self, *, spool: Spool, waiting: WaitingEntries, rescan: Callable[[], None]) -> None:
        self._spool = spool
        self._waiting = waiting
        self._rescan = rescan
        self._inotify: Inotify | None = None
        self._watches: dict[Path, tuple[int, int]] = {}
        self._made: queue.SimpleQueue[Path] = queue.SimpleQueue()

    def refresh(self) -> None:
        """Watch the directories that the spool has now; one that was made anew is watched anew. Raises `OSError`."""
        inotify = self._inotify = self._inotify or _inotify()
        made = {self._made.get_nowait() for _ in range(self._made.qsize())}
        directories = {path: identity_of(path).inode for path in self._spool.watched()}
        # A directory made anew may have the inode of the one before; the watch of that one has ended.
        for path, (inode, watch) in list(self._watches.items()):
            if path in made or not inotify.has(watch) or directories.get(path) != inode:
                inotify.remove(watch)
                del self._watches[path]
        for path in directories.keys() - self._watches.keys():
            try:
                self._watches[path] = directories[path], inotify.add(path)
            except OSError as error:
                logger.warning("%s: cannot be watched, only scanned: %s", path, error)

    def follow(self, timeout: float) -> None:
        """Take the events that are there; where there are none, wait for some until `timeout` seconds are over."""
        if self._inotify is None:
            time.sleep(timeout)
            return
        for event in self._inotify.read(timeout):
            self._told(event)

    def close(self) -> None:
        if self._inotify:
            self._inotify.close()

    def _told(self, event: FileEvent) -> None:
        path = event.path
        if path is None:
            logger.warning("file events were lost, the spool is scanned")
            self._rescan()
        elif event.written:  # told of each write: only an index is looked at before it is closed
            if self._spool.is_index(path):
                self._rescan()
        elif (entry := self._spool.entry_at(path)) is not None:
            self._waiting.add(entry)
        elif self._spool.is_index(path):
            self._rescan()
        elif event.is_directory:
            self._made.put(path)
            self._rescan()


def _inotify() -> Inotify:
    try:
        return Inotify()
    except OSError as error:  # other programs of the user may have all that the kernel gives
        why = f"{error.strerror}: no file events, the spool is only scanned (fs.inotify.max_user_instances)"
        raise OSError(error.errno, why) from error
