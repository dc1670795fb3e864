"""Messages of the commands: progress lines with elapsed time,
and errors of one line with their fix.
"""

import contextlib
import os
import sys
import time

BEGAN_AT = float(os.environ.setdefault("OPSPORTAL_BEGAN_AT", repr(time.time())))


class SetupError(Exception):
    """Something is missing. The message is one line and says how to fix it."""


def say(text: str) -> None:
    """Print one line of progress, prefixed by the seconds since the command started."""
    with contextlib.suppress(OSError):
        print(f"[{time.time() - BEGAN_AT:5.1f} s] {text}", flush=True)


def fail(error: SetupError) -> int:
    """Print the error as one line and return the exit status."""
    sys.stdout.flush()
    print(f"error: {error}", file=sys.stderr, flush=True)
    return 1
