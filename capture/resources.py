"""Resources of the host: raise the priority of capture, and return freed memory."""

import ctypes
import os
import time
from contextlib import suppress

#: For `sys.setswitchinterval`. The threads make many small calls, each of which would wait up to
#: Python's default of 5 ms for a busy thread.
SWITCH_SECONDS = 0.0005
_TRIM_SECONDS = 2.0
#: How much the nice value is lowered.
_RAISED_BY = 10
# Parameters of mallopt(3).
_ARENA_MAX = -8
_MMAP_THRESHOLD = -3
_LARGE_BYTES = 256 * 1024

_initial_niceness = os.getpriority(os.PRIO_PROCESS, 0)


def raise_priority() -> None:
    """Raise the priority of this process and of those that it starts; only root may do this."""
    _set_niceness(_initial_niceness - _RAISED_BY)


def restore_priority() -> None:
    """Undo `raise_priority` for this process."""
    _set_niceness(_initial_niceness)


def _set_niceness(niceness: int) -> None:
    with suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, niceness)


class HeapTrimmer:
    """Returns unused memory of the heap to the system, every `_TRIM_SECONDS`.

    Many jobs pass through the heap.
    """

    def __init__(self) -> None:
        self._malloc_trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
        self._trimmed_at = time.monotonic()

    def trim_if_due(self) -> None:
        now = time.monotonic()
        if self._malloc_trim and now > self._trimmed_at + _TRIM_SECONDS:
            self._malloc_trim(0)
            self._trimmed_at = now


def limit_heap() -> None:
    """Make the allocator return large blocks when freed, and share one heap among threads."""
    libc = ctypes.CDLL(None)
    # Other C libraries than glibc have no `mallopt`, and need none.
    if hasattr(libc, "mallopt"):
        libc.mallopt(_ARENA_MAX, 1)
        libc.mallopt(_MMAP_THRESHOLD, _LARGE_BYTES)
