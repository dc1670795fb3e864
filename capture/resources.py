"""Resources of the host: raise the priority of capture, and return freed memory."""

import ctypes
import os
import time
from contextlib import suppress

SWITCH_SECONDS = (
    0.0005  # threads make many small calls: none must wait 5 ms after each for a busy one
)
_TIDY_SECONDS = 2.0
_HURRY = 10
_ARENA_MAX, _MMAP_THRESHOLD = -8, -3  # of mallopt(3)
_LARGE_BYTES = 256 * 1024


_priority = os.getpriority(os.PRIO_PROCESS, 0)


def go_first() -> None:
    """Let this process, and what it starts from now on, run before others.

    Only root may: else it stays as it is.
    """
    _run_at(_priority - _HURRY)


def go_as_others() -> None:
    """Let this process run as it did before `go_first`."""
    _run_at(_priority)


def _run_at(priority: int) -> None:
    with suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, priority)


class Tidying:
    """Returns memory that the heap no longer needs to the system, at intervals.

    Many jobs pass through the heap.
    """

    def __init__(self) -> None:
        self._trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
        self._at = time.monotonic()

    def tidy(self) -> None:
        if self._trim and (moment := time.monotonic()) > self._at + _TIDY_SECONDS:
            self._trim(0)
            self._at = moment


def give_memory_back() -> None:
    """Make the allocator return large blocks when freed, and share one heap among threads."""
    libc = ctypes.CDLL(None)
    if hasattr(libc, "mallopt"):  # of glibc; others have no such habits
        libc.mallopt(_ARENA_MAX, 1)
        libc.mallopt(_MMAP_THRESHOLD, _LARGE_BYTES)
