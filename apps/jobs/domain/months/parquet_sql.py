"""Run a query of PostgreSQL on Parquet files, by DuckDB with bounded memory and threads.

It runs in a process of its own (`apps.core.bounded_pool`), and so needs no settings.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

MEMORY = "768MB"
THREADS = 2
_PLACEHOLDER = re.compile(r"%([s%])")


@dataclass(frozen=True)
class FileColumn:
    """A column as the query expects it; `default` is its value if the file lacks it."""

    name: str
    type: str
    default: str | int | float | bool | None = None


@dataclass(frozen=True)
class FileTable:
    """A table of the query; without a path it is empty."""

    name: str
    columns: tuple[FileColumn, ...]
    path: str | None


def run(sql: str, parameters: Sequence[Any], tables: Sequence[FileTable]) -> list[tuple[Any, ...]]:
    """Return the rows of a query with `%s` for parameters; times have a time zone.

    Raises `duckdb.Error`, such as `OutOfMemoryException`, and `IOException` for a damaged file.
    """
    import duckdb

    settings: dict[str, str | bool | int | float | list[str]] = {
        "memory_limit": MEMORY,
        "threads": THREADS,
        # Nothing is loaded at run time, and no other file is opened.
        "autoinstall_known_extensions": False,
        "autoload_known_extensions": False,
        "temp_directory": "",
    }
    paths = ", ".join(_literal(table.path) for table in tables if table.path)
    with duckdb.connect(":memory:", config=settings) as connection:
        connection.execute(f"SET allowed_paths = [{paths}]")
        connection.execute("SET enable_external_access = false")
        connection.execute("SET TimeZone = 'UTC'")
        connection.execute("SET enable_progress_bar = false")
        connection.execute("SET lock_configuration = true")
        for table in tables:
            connection.execute(_view(connection, table))
        result = connection.execute(_PLACEHOLDER.sub(_duckdb_placeholder, sql), list(parameters))
        rows: list[tuple[Any, ...]] = result.fetchall()
        return rows


def _duckdb_placeholder(match: re.Match[str]) -> str:
    return "?" if match[1] == "s" else "%"


def _view(connection: Any, table: FileTable) -> str:
    """Return the statement that makes a file a table."""
    there: set[str] = set()
    source = "(SELECT 1) WHERE false"
    if table.path:
        source = f"read_parquet({_literal(table.path)})"
        described = connection.execute(f"DESCRIBE SELECT * FROM {source}").fetchall()
        there = {name for name, *_ in described}
    columns = []
    for column in table.columns:
        value = _name(column.name) if column.name in there else _literal(column.default)
        columns.append(f"CAST({value} AS {column.type}) AS {_name(column.name)}")
    return f"CREATE VIEW {_name(table.name)} AS SELECT {', '.join(columns)} FROM {source}"


def _name(text: str) -> str:
    escaped = text.replace('"', '""')
    return f'"{escaped}"'


def _literal(value: str | float | bool | None) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, str):
        escaped = value.replace("'", "''")
        return f"'{escaped}'"
    return str(value)
