"""What capture asks of the host: to go first when jobs come fast, and to keep no memory that it has freed."""

import ctypes
import os
from contextlib import suppress

_HURRY = -10
_ARENA_MAX, _MMAP_THRESHOLD = -8, -3  # of mallopt(3)
_LARGE_BYTES = 256 * 1024


def go_first() -> None:
    """Let this process, and threads it starts from now on, run before others. Only root may: else it stays as it is."""
    with suppress(OSError):
        os.nice(_HURRY)


def give_memory_back() -> None:
    """Have the allocator return large blocks as soon as they are free, and share one heap between threads."""
    libc = ctypes.CDLL(None)
    if hasattr(libc, "mallopt"):  # of glibc; others have no such habits
        libc.mallopt(_ARENA_MAX, 1)
        libc.mallopt(_MMAP_THRESHOLD, _LARGE_BYTES)
