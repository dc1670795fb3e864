"""File events of the spool: watches each directory flat and returns the entries concerned."""

import logging
import queue
import time
from collections.abc import Callable, Mapping, Set
from pathlib import Path

from apps.clusters.schedulers.base import Spool, identity_of
from capture.queues import WaitingEntries
from capture.watch.base import EventSource, FileEvent, Watch
from capture.watch.file_systems import is_network
from capture.watch.inotify import Inotify
from capture.watch.polling import POLL_SECONDS, Polling

logger = logging.getLogger(__name__)


class Watcher:
    """Adds the entries that file events name to `waiting`.

    If events may have been lost, it calls `rescan` instead. One thread may call `follow` while
    another calls `refresh`.
    """

    def __init__(
        self,
        *,
        spool: Spool,
        waiting: WaitingEntries,
        rescan: Callable[[], None],
        watch: Watch = Watch.AUTO,
    ) -> None:
        self._spool = spool
        self._waiting = waiting
        self._rescan = rescan
        self._watch = watch
        self._inotify: _Watches | None = None
        self._polling: _Watches | None = None
        self._made: queue.SimpleQueue[Path] = queue.SimpleQueue()

    def refresh(self) -> None:
        """Watch the directories of the spool; one that was created again is watched again.

        Raises `OSError`.
        """
        created = {self._made.get_nowait() for _ in range(self._made.qsize())}
        watched: Mapping[Path, int] = {}
        # A directory that is created after the listing and before its parent is watched has no
        # event, so list again until nothing is new.
        while (directories := self._directories()) != watched:
            self._watch_all(directories, created)
            watched = directories
            created = set()

    def _directories(self) -> dict[Path, int]:
        """Return the directories of the spool with their inodes."""
        return {path: identity_of(path).inode for path in self._spool.watched()}

    def follow(self, timeout: float) -> None:
        """Handle events that have occurred; if there are none, wait `timeout` seconds for some."""
        sources = [watches.source for watches in (self._inotify, self._polling) if watches]
        if not sources:
            time.sleep(timeout)
        for source in sources:
            for event in source.read(timeout):
                self._handle(event)
            timeout = 0

    def close(self) -> None:
        for watches in filter(None, (self._inotify, self._polling)):
            watches.source.close()

    def _watch_all(self, directories: Mapping[Path, int], created: Set[Path]) -> None:
        polls = self._watch is Watch.POLLING
        if not polls:
            self._inotify = self._inotify or _Watches(_inotify())
            self._inotify.renew(directories, created)
        polled = {
            path: inode
            for path, inode in directories.items()
            if polls or (self._watch is Watch.AUTO and is_network(path))
        }
        if polled and self._polling is None:
            logger.info(
                "the spool is polled every %g s, as other hosts may write to it", POLL_SECONDS
            )
            self._polling = _Watches(Polling())
        if self._polling:
            self._polling.renew(polled, created)

    def _handle(self, event: FileEvent) -> None:
        path = event.path
        if path is None:
            logger.warning("file events were lost, the spool is scanned")
            self._rescan()
        elif event.written:  # still open: wait until it is closed, except for an index
            if self._spool.is_index(path):
                self._rescan()
        elif (entry := self._spool.entry_at(path)) is not None:
            self._waiting.add(entry)
        elif self._spool.is_index(path):
            self._rescan()
        elif event.is_directory:
            self._made.put(path)
            self._rescan()


class _Watches:
    """The directories that one source watches, with their inodes."""

    def __init__(self, source: EventSource) -> None:
        self.source = source
        self._inodes: dict[Path, int] = {}

    def renew(self, directories: Mapping[Path, int], created: Set[Path]) -> None:
        """Watch these directories, given with their inodes.

        Those in `created` were created since the last call.
        """
        # A directory that was created again may have the inode of the previous one, whose watch has
        # ended.
        for path, inode in list(self._inodes.items()):
            if path in created or not self.source.has(path) or directories.get(path) != inode:
                self.source.remove(path)
                del self._inodes[path]
        for path in directories.keys() - self._inodes.keys():
            try:
                self.source.add(path)
            except OSError as error:
                logger.warning("%s: cannot be watched, only scanned: %s", path, error)
            else:
                self._inodes[path] = directories[path]


def _inotify() -> Inotify:
    try:
        return Inotify()
    except OSError as error:  # the kernel's limit for a user counts other programs too
        why = (
            f"{error.strerror}: no file events, the spool is only scanned "
            "(fs.inotify.max_user_instances)"
        )
        raise OSError(error.errno, why) from error
