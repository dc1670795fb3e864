"""The kernel's file events, watched flat: a thin layer over inotify(7), which takes little for each event."""

import ctypes
import os
import select
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_CREATE, _MOVED_TO, _CLOSE_WRITE, _MODIFY = 0x100, 0x80, 0x8, 0x2
_MASK = _CREATE | _MOVED_TO | _CLOSE_WRITE | _MODIFY | 0x01000000  # only directories
_OVERFLOW, _IGNORED, _IS_DIRECTORY = 0x4000, 0x8000, 0x40000000
_EVENT = struct.Struct("iIII")
_READ_BYTES = 256 * 1024
_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True, slots=True)
class FileEvent:
    """Something at `path`; `written` is a write to a file that is still open. `path` is None where events were lost."""

    path: Path | None
    is_directory: bool = False
    written: bool = False


class Inotify:
    """Events of some directories. One thread reads them, another may add and remove."""

    def __init__(self) -> None:
        self._descriptor = _checked(_libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC))
        self._directories: dict[int, bytes] = {}

    def add(self, directory: Path) -> int:
        """Watch a directory; return the watch. Raises `OSError`."""
        path = os.fsencode(directory)
        watch = _checked(_libc.inotify_add_watch(self._descriptor, path, _MASK))
        self._directories[watch] = path
        return watch

    def remove(self, watch: int) -> None:
        self._directories.pop(watch, None)
        _libc.inotify_rm_watch(self._descriptor, watch)

    def has(self, watch: int) -> bool:
        """Whether the watch goes on: it ends with its directory."""
        return watch in self._directories

    def read(self, timeout: float) -> Iterator[FileEvent]:
        """Yield what happened, as soon as something has, and nothing after `timeout` seconds without."""
        if not select.select([self._descriptor], [], [], timeout)[0]:
            return
        events = os.read(self._descriptor, _READ_BYTES)
        at = 0
        while at < len(events):
            watch, mask, _, length = _EVENT.unpack_from(events, at)
            name = events[at + _EVENT.size : at + _EVENT.size + length].rstrip(b"\0")
            at += _EVENT.size + length
            if mask & _OVERFLOW:
                yield FileEvent(None)
            elif mask & _IGNORED:
                self._directories.pop(watch, None)
            elif (directory := self._directories.get(watch)) is not None:
                path = Path(os.fsdecode(directory + b"/" + name))
                yield FileEvent(path, bool(mask & _IS_DIRECTORY), bool(mask & _MODIFY))

    def close(self) -> None:
        os.close(self._descriptor)


def _checked(result: int) -> int:
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result
