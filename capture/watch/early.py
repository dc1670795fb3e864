"""The kernel's watches of the spool before the program is loaded,
which reads later what has happened since.
"""

import ctypes
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

IN_MODIFY, IN_CLOSE_WRITE, IN_MOVED_TO, IN_CREATE, IN_ONLYDIR = (
    0x2,
    0x8,
    0x80,
    0x100,
    0x01000000,
)  # of inotify(7)

_begun: list[int] = []


def watch_early(directories: "Iterable[str]") -> None:
    """Watch these directories flat, those that are there."""
    libc = ctypes.CDLL(None)
    if not hasattr(libc, "inotify_init1") or (descriptor := libc.inotify_init1(os.O_CLOEXEC)) < 0:
        return
    for directory in directories:
        mask = IN_CREATE | IN_MOVED_TO | IN_CLOSE_WRITE | IN_MODIFY | IN_ONLYDIR
        libc.inotify_add_watch(descriptor, os.fsencode(directory), mask)
    _begun.append(descriptor)


def watched_early() -> int | None:
    """Return the inotify instance with these watches, to go on with: there,
    the same path is the same watch.
    """
    return _begun.pop() if _begun else None
