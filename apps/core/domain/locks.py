"""Advisory locks of PostgreSQL, held until the end of a session or of a transaction."""

from types import TracebackType

from django.db import DatabaseError, connection


class exclusive_lock:  # noqa: N801 - used as a function, as Django's `atomic`
    """Try to take the lock of this number and key for this session; return whether that succeeded.

    The lock is released at the end of the `with` block. If that fails, as in a failed transaction,
    the session is closed, which releases it.

    A class, not a generator: the block of a generator that is never resumed would be ended whenever
    the garbage collector runs, also while this session executes another statement, which would then
    wait for itself.
    """

    def __init__(self, lock: int, key: int) -> None:
        self._numbers = [lock, key]
        self._is_held = False

    def __enter__(self) -> bool:
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_try_advisory_lock(%s, %s)", self._numbers)
            self._is_held = bool(cursor.fetchone()[0])
        return self._is_held

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if not self._is_held:
            return
        try:
            with connection.cursor() as cursor:
                cursor.execute("SELECT pg_advisory_unlock(%s, %s)", self._numbers)
        except DatabaseError:
            connection.close()


def lock_for_this_transaction(name: str) -> None:
    """Wait for the lock of this name, and hold it until this transaction ends."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(hashtext(%s))", [name])


def is_locked_for_this_transaction(name: str) -> bool:
    """Try to take the lock of this name; return whether that succeeded.

    The lock is held until this transaction ends.
    """
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_try_advisory_xact_lock(hashtext(%s))", [name])
        return bool(cursor.fetchone()[0])


def share_lock_for_this_transaction(name: str) -> None:
    """Hold the lock of this name together with other sharers until this transaction ends.

    A transaction that wants it exclusively waits for all sharers.
    """
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock_shared(hashtext(%s))", [name])
