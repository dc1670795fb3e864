"""One line of the log for each outage of the queue."""

import logging
import time
from functools import cache

#: How Celery begins what it logs at each try to connect.
_TRIES = (
    "consumer: Cannot connect to",
    "beat: Connection error",
    "consumer: Connection to broker lost",
)
#: Seconds without such a line after which the next one is of another outage: Celery tries again
#: after 32 at most.
QUIET = 90.0


class OutageFilter(logging.Filter):
    """Let the first line through that says that the queue is away, short,
    and of those that follow it the critical.
    """

    def __init__(self) -> None:
        super().__init__()
        self._last = float("-inf")

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno >= logging.CRITICAL:  # the process ends of it
            return True
        error = _outage_in(record.exc_info[1] if record.exc_info else None)
        if not (error or record.getMessage().startswith(_TRIES)):
            return True
        first = time.monotonic() - self._last > QUIET
        self._last = time.monotonic()
        if first:
            if error:
                why = f"{type(error).__name__}: {error}"
            else:
                why = record.getMessage().split("\n")[0]
            record.msg = "The queue (Redis) is away; more of this is not logged. %s"
            record.args = (why,)
            record.exc_info = record.exc_text = None
        return first


def _outage_in(error: BaseException | None) -> BaseException | None:
    """Return what says that Redis is away, of an error and of those that it came from:
    beat wraps it.
    """
    while error and not isinstance(error, _drivers_errors()):
        error = error.__cause__ or error.__context__
    return error


@cache
def _drivers_errors() -> tuple[type[Exception], ...]:
    """Return what the drivers raise while Redis is away;
    a process that logs no errors need not load them.
    """
    import kombu.exceptions
    import redis.exceptions

    return (
        redis.exceptions.ConnectionError,
        redis.exceptions.TimeoutError,
        kombu.exceptions.OperationalError,
    )
