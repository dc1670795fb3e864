"""Write many rows with COPY, much faster than with the ORM."""

from collections.abc import Iterable, Sequence
from operator import attrgetter
from typing import Any

from django.db import connection, models
from psycopg import Cursor


def copy_rows(
    model: type[models.Model], columns: Sequence[str], rows: Iterable[tuple[Any, ...]]
) -> None:
    """Insert rows, given by their values in `columns`; other columns get the field's default.

    Raises `IntegrityError` if a row exists already.
    """
    field_by_column = {field.column: field for field in model._meta.concrete_fields}
    other_fields = []
    for column, field in field_by_column.items():
        if column not in columns and not field.primary_key:
            other_fields.append(field)
    defaults = tuple(field.get_default() for field in other_fields)
    fields = [field_by_column[column] for column in columns] + other_fields
    names = ", ".join(f'"{field.column}"' for field in fields)
    # The names of types without their sizes, such as `varchar`.
    types = [(field.db_type(connection) or "").partition("(")[0] for field in fields]

    with connection.cursor() as cursor:
        statement = f'COPY "{model._meta.db_table}" ({names}) FROM STDIN (FORMAT BINARY)'
        with connection.wrap_database_errors, cursor.copy(statement) as copy:
            copy.set_types(types)
            for row in rows:
                copy.write_row(row + defaults)


def copy_objects(objects: Sequence[models.Model]) -> None:
    """Insert unsaved objects of one model without setting their primary keys."""
    if objects:
        model = type(objects[0])
        fields = [field for field in model._meta.concrete_fields if not field.primary_key]
        names, columns = zip(*(field.get_attname_column() for field in fields), strict=True)
        copy_rows(model, columns, map(attrgetter(*names), objects))


def next_keys(model: type[models.Model], count: int) -> list[int]:
    """Reserve the primary keys of `count` rows to be copied."""
    table = model._meta.db_table
    column = model._meta.pk.column if model._meta.pk else ""
    with connection.cursor() as cursor:
        # Look up the sequence once, not for every key.
        cursor.execute("SELECT pg_get_serial_sequence(%s, %s)", [table, column])
        (sequence,) = cursor.fetchone()
        cursor.execute(
            "SELECT nextval(%s::regclass) FROM generate_series(1, %s)", [sequence, count]
        )
        return [key for (key,) in cursor.fetchall()]


def update_objects(objects: Sequence[models.Model], names: Iterable[str]) -> int:
    """Save these fields of stored objects of one model in one statement; return how many exist.

    It is `bulk_update` without an expression for each field of each row: for two fields of 2,000
    rows, 9 ms of the processor instead of 315.
    """
    if not objects:
        return 0
    meta = type(objects[0])._meta
    key = meta.pk
    by_name = {field.name: field for field in meta.concrete_fields}
    fields = [by_name[name] for name in names]
    arrays = []
    for field in (key, *fields):
        values = [getattr(row, field.attname) for row in objects]
        arrays.append([field.get_db_prep_save(value, connection) for value in values])

    types = ", ".join(f"%s::{_type_of(field)}[]" for field in (key, *fields))
    columns = ", ".join(f'"{field.column}"' for field in (key, *fields))
    changes = ", ".join(f'"{field.column}" = new."{field.column}"' for field in fields)
    with connection.cursor() as cursor:
        cursor.execute(
            f'UPDATE "{meta.db_table}" AS stored SET {changes}'
            f" FROM unnest({types}) AS new ({columns})"
            f' WHERE stored."{key.column}" = new."{key.column}"',
            arrays,
        )
        count: int = cursor.rowcount
    return count


def _type_of(field: models.Field) -> str:
    """Return the type of a field's column without its length, which the column checks itself."""
    return (field.db_type(connection) or "").partition("(")[0]


def rows_where_any(
    model: type[models.Model],
    columns: Sequence[str],
    column: str,
    values: Sequence[Any],
    **also: Any,
) -> list[tuple[Any, ...]]:
    """Return columns of the rows with one of `values` in `column`, and equal to `also` elsewhere.

    The values are sent as one array in PostgreSQL's binary format. Django's cursors cannot use it:
    they convert bytes to text and back.
    """
    conditions = "".join(f' AND "{name}" = %b' for name in also)
    selected = ", ".join(f'"{name}"' for name in columns)
    query = (
        f'SELECT {selected} FROM "{model._meta.db_table}" WHERE "{column}" = ANY(%b){conditions}'
    )
    connection.ensure_connection()
    with connection.wrap_database_errors, Cursor(connection.connection) as cursor:
        return cursor.execute(query, [list(values), *also.values()], binary=True).fetchall()
