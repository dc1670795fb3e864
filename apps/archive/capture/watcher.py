"""File events of the spool: watches each of its directories flat and says which entries they are about."""

import logging
import os
import queue
from collections.abc import Callable
from pathlib import Path

from watchdog.events import (
    DirCreatedEvent,
    DirMovedEvent,
    FileClosedEvent,
    FileCreatedEvent,
    FileModifiedEvent,
    FileMovedEvent,
    FileSystemEvent,
    FileSystemEventHandler,
)
from watchdog.observers import Observer
from watchdog.observers.api import ObservedWatch

from apps.archive.capture.waiting import WaitingEntries
from apps.clusters.schedulers.base import Spool, identity_of

logger = logging.getLogger(__name__)

_EVENTS: list[type[FileSystemEvent]] = [
    DirCreatedEvent,
    DirMovedEvent,
    FileCreatedEvent,
    FileMovedEvent,
    FileClosedEvent,
    FileModifiedEvent,
]


class Watcher:
    """Adds to `waiting` what events name. Where events may have been lost, `rescan` is called instead."""

    def __init__(self, *, spool: Spool, waiting: WaitingEntries, rescan: Callable[[], None]) -> None:
        self._spool = spool
        self._observer = Observer()
        self._handler = _Handler(spool, waiting, self._directory_made, rescan)
        self._rescan = rescan
        self._overflow = _OverflowReports(rescan)
        self._watches: dict[Path, tuple[int, ObservedWatch]] = {}
        self._made: queue.SimpleQueue[Path] = queue.SimpleQueue()

    def start(self) -> None:
        logging.getLogger("watchdog").addHandler(self._overflow)
        self._observer.start()

    def refresh(self) -> None:
        """Watch the directories that the spool has now; one that was made anew is watched anew."""
        made = {self._made.get_nowait() for _ in range(self._made.qsize())}
        directories = {path: identity_of(path).inode for path in self._spool.watched()}
        # A directory made anew may have the inode of the one before; the watch of that one has ended.
        ended = {emitter.watch for emitter in self._observer.emitters if not emitter.should_keep_running()}
        for path, (inode, watch) in list(self._watches.items()):
            if path in made or watch in ended or directories.get(path) != inode:
                self._observer.unschedule(watch)
                del self._watches[path]
        for path in directories.keys() - self._watches.keys():
            try:
                watch = self._observer.schedule(self._handler, str(path), recursive=False, event_filter=_EVENTS)
            except OSError as error:
                logger.warning("%s: cannot be watched, only scanned: %s", path, error)
            else:
                self._watches[path] = (directories[path], watch)

    def stop(self) -> None:
        logging.getLogger("watchdog").removeHandler(self._overflow)
        self._observer.stop()
        self._observer.join(timeout=2)

    def _directory_made(self, path: Path) -> None:
        self._made.put(path)
        self._rescan()


class _Handler(FileSystemEventHandler):
    def __init__(
        self,
        spool: Spool,
        waiting: WaitingEntries,
        directory_made: Callable[[Path], None],
        rescan: Callable[[], None],
    ) -> None:
        self._spool = spool
        self._waiting = waiting
        self._directory_made = directory_made
        self._rescan = rescan

    def dispatch(self, event: FileSystemEvent) -> None:
        path = Path(os.fsdecode(event.dest_path or event.src_path))
        if isinstance(event, FileModifiedEvent):  # told of each write: only an index is looked at before it is closed
            if self._spool.is_index(path):
                self._rescan()
            return
        entry = self._spool.entry_at(path)
        if entry is not None:
            self._waiting.add(entry)
        elif self._spool.is_index(path):
            self._rescan()
        elif event.is_directory:
            self._directory_made(path)


class _OverflowReports(logging.Handler):
    """watchdog tells of an overflow of the kernel's queue in its log alone."""

    def __init__(self, rescan: Callable[[], None]) -> None:
        super().__init__(level=logging.WARNING)
        self._rescan = rescan

    def emit(self, record: logging.LogRecord) -> None:
        if "overflow" in record.getMessage():
            self._rescan()
