"""The rows that every test starts with: those that migrations and the portal itself load."""

from collections.abc import Iterator
from contextlib import contextmanager

from django.db import connection, transaction
from django.db.backends.utils import CursorWrapper


@contextmanager
def rolled_back() -> Iterator[None]:
    """Roll back what the body writes: for tests whose cases start from the same rows."""
    with transaction.atomic():
        yield
        transaction.set_rollback(True)


def copy_rows() -> dict[str, bytes]:
    """Return the rows of each table that has any, as PostgreSQL copies them."""
    rows = {}
    with connection.cursor() as cursor:
        for table in _list_filled_tables(cursor):
            with cursor.copy(f"COPY {table} TO STDOUT") as copy:
                rows[table] = b"".join(copy)
    return rows


def restore_rows(rows: dict[str, bytes]) -> None:
    """Give every table the rows that `copy_rows` returned.

    Django's `flush` truncates all 149 tables and loads permissions and known errors again, which
    takes half a second.
    """
    with transaction.atomic(), connection.cursor() as cursor:
        # This switches triggers and foreign keys off.
        cursor.execute("SET LOCAL session_replication_role = replica")
        for table in _list_filled_tables(cursor):
            cursor.execute(f"DELETE FROM {table}")
        for table, data in rows.items():
            with cursor.copy(f"COPY {table} FROM STDIN") as copy:
                copy.write(data)


def _list_filled_tables(cursor: CursorWrapper) -> list[str]:
    condition = "relkind = 'r' AND relnamespace = 'public'::regnamespace"
    cursor.execute(f"SELECT oid::regclass FROM pg_class WHERE {condition}")
    tables = [table for (table,) in cursor.fetchall()]
    cursor.execute(
        " UNION ALL ".join(
            f"SELECT '{table}' WHERE EXISTS (SELECT FROM {table})" for table in tables
        )
    )
    return [table for (table,) in cursor.fetchall()]
