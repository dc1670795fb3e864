"""Sort the rows of a table by `?sort=`: short lists in memory, long ones by database columns.

The headings are those of the template tag `sort_head`.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from django.http import HttpRequest

from apps.core.web.query import read_query_or_warn

R = TypeVar("R")


def read_sort(request: HttpRequest, columns: Iterable[str], *, default: str) -> str:
    """Return the order in the query string: a column, or `-` and a column for descending."""
    names = list(columns)

    def parse(text: str) -> str | None:
        return text if text.removeprefix("-") in names else None

    return (
        read_query_or_warn(request, "sort", parse, expected=f"one of {', '.join(names)}") or default
    )


def field_order(sort: str, fields: Mapping[str, str]) -> str:
    """Return the order of a column as the order of its database field, as `order_by` takes it."""
    column = sort.removeprefix("-")
    return sort.replace(column, fields[column])


def sort_rows(rows: Iterable[R], columns: Mapping[str, Callable[[R], Any]], sort: str) -> list[R]:
    """Return rows in this order; rows without a value come last, equal rows keep their order."""
    value_of = columns[sort.removeprefix("-")]
    with_value = []
    without = []
    for row in rows:
        if value_of(row) is None:
            without.append(row)
        else:
            with_value.append(row)
    with_value.sort(key=value_of, reverse=sort.startswith("-"))
    return with_value + without
