"""Log only one line for each outage of the queue, and for each refused request."""

import logging
import time
from functools import cache

#: Prefixes of the lines that Celery logs at each connection attempt.
_TRIES = (
    "consumer: Cannot connect to",
    "beat: Connection error",
    "consumer: Connection to broker lost",
)
#: Seconds without such a line after which the next line starts a new outage. Celery retries after
#: 32 seconds at most.
QUIET = 90.0


class OutageFilter(logging.Filter):
    """Pass only the first line about an outage of the queue, shortened.

    Critical lines are always passed.
    """

    def __init__(self) -> None:
        super().__init__()
        self._last = float("-inf")

    def filter(self, record: logging.LogRecord) -> bool:
        # The process ends because of this error.
        if record.levelno >= logging.CRITICAL:
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
            record.msg = "The queue (Redis) is unavailable; further errors are not logged. %s"
            record.args = (why,)
            record.exc_info = record.exc_text = None
        return first


class RefusalFilter(logging.Filter):
    """Log a refused or unavailable response (4xx, 503) in one line, with the reason at its end.

    Django adds a traceback, which only says where the portal checks. Errors of the portal keep it.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        status = getattr(record, "status_code", 0)
        is_refusal = 400 <= status < 500 or status == 503
        if not (is_refusal and record.name.startswith("django.") and record.exc_info):
            return True
        error = record.exc_info[1]
        why = str(error).strip().partition("\n")[0]
        if status == 503:
            why = f"{type(error).__name__}: {why}"
        record.exc_info = record.exc_text = None
        if why and why not in record.getMessage():
            record.msg, record.args = "%s (%s)", (record.getMessage(), why)
        return True


def _outage_in(error: BaseException | None) -> BaseException | None:
    """Return the error of Redis in a chain of causes, which beat wraps; None if there is none."""
    while error and not isinstance(error, _drivers_errors()):
        error = error.__cause__ or error.__context__
    return error


@cache
def _drivers_errors() -> tuple[type[Exception], ...]:
    """Return the errors that the drivers raise during an outage of Redis.

    The drivers are imported late: a process that logs no errors need not load them.
    """
    import kombu.exceptions
    import redis.exceptions

    return (
        redis.exceptions.ConnectionError,
        redis.exceptions.TimeoutError,
        kombu.exceptions.OperationalError,
    )
