"""Read and write the rows of a table as Parquet, for DuckDB, pandas and Spark."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from django.db import connection

from apps.jobs.domain.months.tables import MonthTable

if TYPE_CHECKING:
    import pyarrow as pa

#: Rows in memory at once, and in one row group of the file.
GROUP = 20_000


def write_rows(path: Path, table: MonthTable, parameters: Mapping[str, Any]) -> None:
    """Write the rows of a table that match its condition, ordered by primary key."""
    # pyarrow takes 60 MB, which other processes should not pay for.
    import pyarrow as pa
    from pyarrow import parquet

    schema = pa.schema([(column, _type_of(field)) for column, field in table.fields.items()])
    columns = ", ".join(_selected(column, schema.field(column).type) for column in table.fields)
    with (
        connection.chunked_cursor() as cursor,
        parquet.ParquetWriter(path, schema, compression="zstd") as writer,
    ):
        cursor.execute(
            f'SELECT {columns} FROM "{table.name}" WHERE {table.condition} ORDER BY "{table.key}"',
            dict(parameters),
        )
        while rows := cursor.fetchmany(GROUP):
            arrays = []
            for values, field in zip(zip(*rows, strict=True), schema, strict=True):
                arrays.append(pa.array(values, field.type))
            writer.write_batch(pa.record_batch(arrays, schema=schema))


def copy_into(table: str, path: Path, known: Sequence[str]) -> None:
    """Copy the rows of a file into a table, without columns that the table no longer has."""
    from pyarrow import parquet

    with parquet.ParquetFile(path) as file:
        columns = [name for name in file.schema_arrow.names if name in known]
        names = ", ".join(f'"{name}"' for name in columns)
        with (
            connection.cursor() as cursor,
            cursor.copy(f'COPY "{table}" ({names}) FROM STDIN') as copy,
        ):
            for batch in file.iter_batches(GROUP, columns=columns):
                for row in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                    copy.write_row(row)


def _type_of(field: Any) -> "pa.DataType":
    import pyarrow as pa

    types = {
        "bigint": pa.int64(),
        "integer": pa.int32(),
        "double precision": pa.float64(),
        "boolean": pa.bool_(),
        "timestamp with time zone": pa.timestamp("us", "UTC"),
        "date": pa.date32(),
        "bytea": pa.binary(),
    }
    return types.get(field.db_type(connection), pa.string())


def _selected(column: str, kind: "pa.DataType") -> str:
    return f'"{column}"::text' if kind == "string" else f'"{column}"'
