"""Advisory locks of PostgreSQL, held until the end of a session or of a transaction."""

from collections.abc import Iterator
from contextlib import contextmanager

from django.db import DatabaseError, connection


@contextmanager
def exclusive_lock(lock: int, key: int) -> Iterator[bool]:
    """Try to take the lock of this number and key for this session; yield whether that succeeded.

    If the lock cannot be released, as in a failed transaction, the session is closed, which
    releases it.
    """
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_try_advisory_lock(%s, %s)", [lock, key])
        alone = bool(cursor.fetchone()[0])
    try:
        yield alone
    finally:
        if alone:
            try:
                with connection.cursor() as cursor:
                    cursor.execute("SELECT pg_advisory_unlock(%s, %s)", [lock, key])
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
