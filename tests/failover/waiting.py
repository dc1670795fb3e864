"""Waiting for what happens in other processes."""

import time
from collections.abc import Callable

#: Far more than anything needs on a busy machine.
SECONDS = 60


def wait_for(condition: Callable[[], object]) -> float:
    """Wait until a condition holds; return after how many seconds it did."""
    start = time.monotonic()
    while not condition():
        assert time.monotonic() < start + SECONDS, "it did not happen"
        time.sleep(0.05)
    return time.monotonic() - start
