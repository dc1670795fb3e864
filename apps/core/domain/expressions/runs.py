"""Run regular expressions written by users, with a time budget and one at a time per user.

They run in processes that are killed when the budget is used up. RE2 takes linear time, but an
expression of 50 characters can have thousands of states, and then a megabyte takes a minute.
Therefore only modules that need no settings compile unreviewed expressions, and pages call them
through this module.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, TypeVar

from apps.core.bounded_pool import BoundedPool, BudgetExceeded, PoolBusy
from apps.core.domain.locks import exclusive_lock
from apps.core.errors import DomainError

T = TypeVar("T")

#: A separate pool: a costly expression must not delay the rendering of pages.
POOL = BoundedPool()
#: How long an expression waits for a free process.
WAIT_SECONDS = 1.0
_POOL_BUSY = "Too many regular expressions are running. Try again in a moment."
_USER_LOCK = 4_716_041


class TooCostly(DomainError):
    """An expression had no result within its budget or could not start.

    The message says what to do.
    """


class ExpressionRun:
    """Calls in the pool that share one time budget."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._end = time.monotonic() + seconds

    def call(self, function: Callable[..., T], *arguments: Any) -> T:
        """Call a module-level function with picklable arguments and return its result.

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
    """Give a user's expressions a time budget, which starts when a process is ready.

    Raises `TooCostly`, at once if the user has another run, so that no thread waits. Runs without a
    user (commands and the portal itself) are not limited to one.
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
    """Do nothing: after this call the process has started."""
