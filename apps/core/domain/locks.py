"""Session-level advisory locks of PostgreSQL, which end with the process."""

from collections.abc import Iterator
from contextlib import contextmanager

from django.db import connection


@contextmanager
def exclusive_lock(lock: int, key: int) -> Iterator[bool]:
    """Try to take the lock of this number and key for this database session; yield whether it was free."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_try_advisory_lock(%s, %s)", [lock, key])
        alone = bool(cursor.fetchone()[0])
    try:
        yield alone
    finally:
        if alone:
            with connection.cursor() as cursor:
                cursor.execute("SELECT pg_advisory_unlock(%s, %s)", [lock, key])
