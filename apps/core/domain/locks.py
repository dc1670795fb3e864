"""Advisory locks of PostgreSQL: of a session, which end with the process, and of a transaction."""

from collections.abc import Iterator
from contextlib import contextmanager

from django.db import DatabaseError, connection


@contextmanager
def exclusive_lock(lock: int, key: int) -> Iterator[bool]:
    """Try to take the lock of this number and key for this database session;
    yield whether it was free.

    Where it cannot be given back, as in a transaction that failed, the session ends, and the lock
    with it.
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
    """Wait until no other transaction holds the lock of this name,
    and hold it until this one ends.
    """
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(hashtext(%s))", [name])


def is_locked_for_this_transaction(name: str) -> bool:
    """Hold the lock of this name until this transaction ends, unless another one holds it."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_try_advisory_xact_lock(hashtext(%s))", [name])
        return bool(cursor.fetchone()[0])


def share_lock_for_this_transaction(name: str) -> None:
    """Hold the lock of this name together with others that share it:
    who takes it alone waits for all of them.
    """
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock_shared(hashtext(%s))", [name])
