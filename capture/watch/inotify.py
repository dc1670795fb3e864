"""The kernel's file events, read by watchdog's inotify part in batches in the caller's thread.

Watchdog's emitter needs three threads and several objects per event, and does not report overflows.
"""

import errno
import os
import select
from pathlib import Path

from watchdog.observers.inotify_c import (
    CallbackId,
    InotifyConstants,
    InotifyEvent,
    InotifyFD,
    Mask,
    WatchDescriptor,
)

from capture.watch.base import FileEvent

_MASK = Mask(
    InotifyConstants.IN_CREATE
    | InotifyConstants.IN_MOVED_TO
    | InotifyConstants.IN_CLOSE_WRITE
    | InotifyConstants.IN_MODIFY
    | InotifyConstants.IN_ONLYDIR
)
_ID = CallbackId(0)  # each watch has one callback


class Inotify:
    """An `EventSource`, and the callback of its watches for watchdog."""

    def __init__(self) -> None:
        """Raises `OSError` where the kernel gives this user no more of them."""
        self._descriptor = _Descriptor()
        self._watches: dict[Path, WatchDescriptor] = {}
        self._directories: dict[WatchDescriptor, bytes] = {}  # of watches that go on
        self._events: list[FileEvent] = []

    def add(self, directory: Path) -> None:
        path = os.fsencode(directory)
        watch = self._descriptor.add_callback(path, _MASK, self, _ID)
        if watch < 0:  # watchdog raises every error but this one
            self._descriptor.remove_callbacks([(watch, _ID)])
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(directory))
        self._watches[directory] = watch
        self._directories[watch] = path

    def remove(self, directory: Path) -> None:
        watch = self._watches.pop(directory)
        if self._directories.pop(watch, None) is not None:
            self._descriptor.remove_callbacks([(watch, _ID)])

    def has(self, directory: Path) -> bool:
        return self._watches.get(directory) in self._directories

    def read(self, timeout: float) -> list[FileEvent]:
        self._descriptor.timeout = timeout
        for event in self._descriptor.read_events():
            self._descriptor.handle_event(event)
        events, self._events = self._events, []
        return events

    def close(self) -> None:
        # Only from the first read on does the descriptor know whether someone is reading.
        self.read(0)
        self._descriptor.close()

    def on_event(self, event: InotifyEvent) -> None:
        if (directory := self._directories.get(event.wd)) is not None:
            path = Path(os.fsdecode(directory + b"/" + event.name))
            self._events.append(FileEvent(path, event.is_directory, event.is_modify))

    def on_watch_deleted(self, wd: WatchDescriptor) -> None:
        self._directories.pop(wd, None)

    def on_queue_overflow(self) -> None:
        self._events.append(FileEvent(None))


class _Descriptor(InotifyFD):
    """Watchdog's reader of events, without its thread: a read waits at most `timeout` seconds."""

    timeout = 0.0

    def _check_inotify_fd(self) -> bool:
        return (
            self._inotify_fd
            in select.select([self._inotify_fd, self._kill_r], [], [], self.timeout)[0]
        )
