"""Writes many rows by COPY, much faster than the ORM."""

from collections.abc import Iterable, Sequence
from typing import Any

from django.db import connection, models
from psycopg import Cursor


def copy_rows(model: type[models.Model], columns: Sequence[str], rows: Iterable[tuple[Any, ...]]) -> None:
    """Insert rows, given by their values in `columns`; any other column gets the default of its field.

    Raises `IntegrityError` where a row is there already.
    """
    by_column = {field.column: field for field in model._meta.concrete_fields}
    others = [field for column, field in by_column.items() if column not in columns and not field.primary_key]
    fields = [*(by_column[column] for column in columns), *others]
    defaults = tuple(field.get_default() for field in others)
    names = ", ".join(f'"{field.column}"' for field in fields)
    with connection.cursor() as cursor:
        copy = f'COPY "{model._meta.db_table}" ({names}) FROM STDIN (FORMAT BINARY)'
        with connection.wrap_database_errors, cursor.copy(copy) as into:
            into.set_types([(field.db_type(connection) or "").partition("(")[0] for field in fields])
            for row in rows:
                into.write_row(row + defaults)


def next_keys(model: type[models.Model], count: int) -> list[int]:
    """Take the primary keys of `count` rows to be copied."""
    table, column = model._meta.db_table, model._meta.pk.column if model._meta.pk else ""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT nextval(pg_get_serial_sequence(%s, %s)) FROM generate_series(1, %s)", [table, column, count]
        )
        return [key for (key,) in cursor.fetchall()]


def rows_where_any(
    model: type[models.Model], columns: Sequence[str], column: str, values: Sequence[Any], **also: Any
) -> list[tuple[Any, ...]]:
    """Return columns of the rows with one of `values` in `column`, sent as one array; and with `also` in others.

    Goes by PostgreSQL's binary format, which Django does not use: of bytes it makes text and back.
    """
    conditions = "".join(f' AND "{name}" = %b' for name in also)
    wanted = ", ".join(f'"{name}"' for name in columns)
    query = f'SELECT {wanted} FROM "{model._meta.db_table}" WHERE "{column}" = ANY(%b){conditions}'
    connection.ensure_connection()
    with connection.wrap_database_errors, Cursor(connection.connection) as cursor:
        return cursor.execute(query, [list(values), *also.values()], binary=True).fetchall()


def lock_for_this_transaction(name: str) -> None:
    """Wait until no other transaction holds the lock of this name, and hold it until this one ends."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(hashtext(%s))", [name])


def is_locked_for_this_transaction(name: str) -> bool:
    """Hold the lock of this name until this transaction ends, unless another one holds it."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_try_advisory_xact_lock(hashtext(%s))", [name])
        return bool(cursor.fetchone()[0])
