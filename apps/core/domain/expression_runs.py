"""Run regular expressions that users wrote: in processes that are killed after a budget,
one per user at a time.

RE2 takes linear time, but an expression of 50 characters can have thousands of states, and then a
megabyte takes a minute. So only functions of modules that need no settings compile one that was not
reviewed, and pages call them here.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, TypeVar

from apps.core.domain.bounded import BoundedPool, BudgetExceeded, PoolBusy
from apps.core.domain.locks import exclusive_lock
from apps.core.errors import DomainError

T = TypeVar("T")

#: Processes of their own: a costly expression takes none from what makes pages.
POOL = BoundedPool()
#: So long a user's expression waits for a process.
WAIT_SECONDS = 1.0
_POOL_BUSY = "Too many regular expressions are running. Try again in a moment."
_USER_LOCK = 4_716_041


class TooCostly(DomainError):
    """An expression had no result within its budget, or could not begin;
    the message says what to do.
    """


class ExpressionRun:
    """Calls of functions in the pool that share one budget of time."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._end = time.monotonic() + seconds

    def call(self, function: Callable[..., T], *arguments: Any) -> T:
        """Return what a module-level function returns for picklable arguments.

        Raises `TooCostly`.
        """
        left = self._end - time.monotonic()
        try:
            if left > 0:
                return POOL.call(function, *arguments, seconds=left)
        except PoolBusy:
            raise TooCostly(_POOL_BUSY) from None
        except BudgetExceeded:
            pass
        raise TooCostly(
            f"This is too costly: no result within {self._seconds:g} s. Use a simpler expression."
        )


@contextmanager
def expression_run(user_id: int | None, *, seconds: float) -> Iterator[ExpressionRun]:
    """Give a user's expressions a budget, which begins when a process is ready. Raises `TooCostly`.

    A user who has another run is refused at once, so that waiting takes no thread. Without a user
    (commands and the portal itself) runs are not limited to one.
    """
    with ExitStack() as stack:
        if user_id is not None and not stack.enter_context(exclusive_lock(_USER_LOCK, user_id)):
            raise TooCostly(
                "Another regular expression of yours is still running. Try again in a moment."
            )
        try:
            POOL.call(_start, seconds=WAIT_SECONDS)
        except BudgetExceeded:
            raise TooCostly(_POOL_BUSY) from None
        yield ExpressionRun(seconds)


def _start() -> None:
    """Do nothing: the process is there then."""
