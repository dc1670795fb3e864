"""File events from comparing listings, with watchdog's polling emitter: for network file systems.

A poll lists a directory and stats each entry, in one thread per directory.
"""

import os
import queue
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from watchdog.events import (
    EVENT_TYPE_DELETED,
    DirCreatedEvent,
    DirDeletedEvent,
    DirMovedEvent,
    FileCreatedEvent,
    FileModifiedEvent,
    FileMovedEvent,
    FileSystemEvent,
    FileSystemEventHandler,
)
from watchdog.observers.api import BaseObserver, ObservedWatch
from watchdog.observers.polling import PollingEmitter

from capture.watch.base import FileEvent

POLL_SECONDS = 1.0
# times the processor time of a poll: ten directories take no more than a fifth of a processor
_REST = 50
_EVENTS: list[type[FileSystemEvent]] = [
    DirCreatedEvent,
    DirMovedEvent,
    DirDeletedEvent,
    FileCreatedEvent,
    FileMovedEvent,
    FileModifiedEvent,
]


class Polling:
    """An `EventSource`."""

    def __init__(self) -> None:
        self._events: queue.SimpleQueue[FileEvent] = queue.SimpleQueue()
        self._observer = BaseObserver(
            _Emitter, timeout=POLL_SECONDS, stat=_state_of, listdir=os.scandir
        )
        self._watches: dict[Path, ObservedWatch] = {}
        self._observer.start()

    def add(self, directory: Path) -> None:
        handler = _Handler(str(directory), self._events)
        self._watches[directory] = self._observer.schedule(
            handler, str(directory), event_filter=_EVENTS
        )

    def remove(self, directory: Path) -> None:
        self._observer.unschedule(self._watches.pop(directory))

    def has(self, directory: Path) -> bool:
        watch = self._watches.get(directory)
        return any(
            emitter.watch == watch and emitter.is_alive() for emitter in self._observer.emitters
        )

    def read(self, timeout: float) -> Iterator[FileEvent]:
        try:
            yield self._events.get(timeout=timeout)
            for _ in range(self._events.qsize()):
                yield self._events.get_nowait()
        except queue.Empty:
            return

    def close(self) -> None:
        self._observer.stop()
        self._observer.join()


class _Emitter(PollingEmitter):
    """Polls a directory every POLL_SECONDS, and a large one more rarely."""

    _computed_seconds = 0.0

    def queue_events(self, timeout: float) -> None:
        began = time.thread_time()
        super().queue_events(max(timeout, _REST * self._computed_seconds))
        self._computed_seconds = time.thread_time() - began


class _Handler(FileSystemEventHandler):
    """Queues the events of a directory until they are read."""

    def __init__(self, directory: str, events: queue.SimpleQueue[FileEvent]) -> None:
        self._directory = directory
        self._events = events

    def dispatch(self, event: FileSystemEvent) -> None:
        """Queue created and written files, and the end of the watch, which may have to be renewed.

        A new file may have the inode of a deleted one and so be reported as moved. Other deletions
        do not matter.
        """
        if event.event_type != EVENT_TYPE_DELETED or event.src_path == self._directory:
            path = event.dest_path or event.src_path
            self._events.put(FileEvent(Path(os.fsdecode(path)), event.is_directory))


class _State(NamedTuple):
    """What watchdog compares: a third of what `os.stat_result` takes, for each entry of a spool."""

    st_dev: int
    st_ino: int
    st_mode: int
    st_mtime: float
    st_size: int


def _state_of(path: str) -> _State:
    status = os.lstat(path)
    return _State(status.st_dev, status.st_ino, status.st_mode, status.st_mtime, status.st_size)
