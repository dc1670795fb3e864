"""Keyset pagination: without a count, and equally fast on every page."""

import base64
import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Generic, TypeVar
from urllib.parse import urlencode

from django.core.exceptions import ValidationError
from django.db.models import Model, Q, QuerySet
from django.utils.datastructures import MultiValueDict

M = TypeVar("M", bound=Model)


@dataclass(frozen=True)
class Page(Generic[M]):
    """Rows, and the query strings of the next and the first page, with filters kept.

    `stopped_at` is the time of the last row examined if the search was cut short.
    """

    rows: list[M]
    next_query: str
    first_query: str
    stopped_at: datetime | None = None

    @property
    def is_first(self) -> bool:
        return not self.first_query


@dataclass(frozen=True)
class FoundRows(Generic[M]):
    """Rows in order.

    `stopped_at` has time and key of the last row examined if the search was cut short.
    """

    rows: list[M]
    stopped_at: tuple[datetime, Any] | None = None


Find = Callable[[QuerySet[M], int], FoundRows[M]]


def newest_first(
    rows: QuerySet[M],
    *,
    by: str,
    query: MultiValueDict[str, str],
    size: int = 50,
    find: Find[M] | None = None,
) -> Page[M]:
    """Return the page of `rows` after `query["after"]`, newest first by a non-null time field.

    An invalid `after` returns the first page. `find` returns the first matching rows of a queryset,
    up to a number.
    """
    return in_order(rows, by=f"-{by}", query=query, size=size, find=find)


def in_order(
    rows: QuerySet[M],
    *,
    by: str,
    query: MultiValueDict[str, str],
    size: int = 50,
    find: Find[M] | None = None,
) -> Page[M]:
    """Return a page ordered by any non-null field or annotation `by`; `-by` for descending.

    The field has dates, times, numbers or text. Among equal values, the newest row comes first.
    """
    sign, by = ("-", by[1:]) if by.startswith("-") else ("", by)
    mark = read_position(query, rows, by)
    if mark is not None:
        at, pk = mark
        beyond = "lt" if sign else "gt"
        # The first condition is redundant, but lets PostgreSQL use an index.
        rows = rows.filter(
            Q(**{f"{by}__{beyond}e": at}),
            Q(**{f"{by}__{beyond}": at}) | Q(**{by: at, "pk__lt": pk}),
        )
    ordered = rows.order_by(f"{sign}{by}", "-pk")
    if find:
        matches = find(ordered, size + 1)
    else:
        matches = FoundRows(list(ordered[: size + 1]))
    shown = matches.rows[:size]
    next_query = first_query = ""
    if len(matches.rows) > size:
        next_query = with_changes(query, after=_write(getattr(shown[-1], by), shown[-1].pk))
    elif matches.stopped_at:
        next_query = with_changes(query, after=_write(*matches.stopped_at))
    if mark is not None:
        first_query = with_changes(query)
    return Page(
        shown, next_query, first_query, matches.stopped_at[0] if matches.stopped_at else None
    )


def with_changes(query: MultiValueDict[str, str], **changes: str) -> str:
    """Return the query string with these parameters changed; empty ones are removed.

    The position `after` is removed too.
    """
    changed = query.copy()
    changed.pop("after", None)
    for name, value in changes.items():
        changed.setlist(name, [value] if value else [])
    return "?" + urlencode(list(changed.lists()), doseq=True)


def _write(at: Any, pk: Any) -> str:
    return base64.urlsafe_b64encode(
        json.dumps([at, pk], default=lambda day: day.isoformat()).encode()
    ).decode()


def read_position(
    query: MultiValueDict[str, str], rows: QuerySet[Any], by: str
) -> tuple[Any, int] | None:
    """Return value and key of the row after which a page begins; None for the first page."""
    try:
        text, pk = json.loads(base64.urlsafe_b64decode(query.get("after", "").encode()))
        if by in rows.query.annotations:
            field = rows.query.annotations[by].output_field
        else:
            field = rows.model._meta.get_field(by)
        at = field.to_python(text)
        if "\0" in str(at):
            return None
        # In UTC: PostgreSQL rejects offsets that Python accepts.
        return at.astimezone(UTC) if isinstance(at, datetime) else at, int(pk)
    except (ValueError, TypeError, OverflowError, RecursionError, ValidationError):
        return None
