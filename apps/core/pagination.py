"""Pages through long lists by the last row seen, not by number: no count, and as fast at the end as at the start."""

import base64
import json
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Generic, TypeVar

from django.db.models import Model, Q, QuerySet
from django.http import QueryDict
from rest_framework.exceptions import NotFound
from rest_framework.pagination import Cursor, CursorPagination
from rest_framework.request import Request

M = TypeVar("M", bound=Model)


@dataclass(frozen=True)
class Page(Generic[M]):
    """Some rows, and the queries (`after=…`, filters kept) that lead to the next and back to the first page."""

    rows: list[M]
    next_query: str
    first_query: str

    @property
    def is_first(self) -> bool:
        return not self.first_query


def newest_first(rows: QuerySet[M], *, by: str, query: QueryDict, size: int = 50) -> Page[M]:
    """Return the page of `rows` that `query["after"]` asks for, newest by the non-null time field `by` first.

    A mark that cannot be read shows the first page.
    """
    mark = _read(query.get("after", ""))
    if mark is not None:
        at, pk = mark
        rows = rows.filter(Q(**{f"{by}__lt": at}) | Q(**{by: at, "pk__lt": pk}))
    found = list(rows.order_by(f"-{by}", "-pk")[: size + 1])
    shown = found[:size]
    next_query = first_query = ""
    if len(found) > size:
        next_query = _with(query, after=_write(getattr(shown[-1], by), shown[-1].pk))
    if mark is not None:
        first_query = _with(query)
    return Page(shown, next_query, first_query)


def _with(query: QueryDict, **changes: str) -> str:
    changed = query.copy()
    changed.pop("after", None)
    for name, value in changes.items():
        changed[name] = value
    return "?" + changed.urlencode()


def _write(at: datetime, pk: Any) -> str:
    return base64.urlsafe_b64encode(json.dumps([at.isoformat(), pk]).encode()).decode()


def _read(mark: str) -> tuple[datetime, int] | None:
    try:
        at, pk = json.loads(base64.urlsafe_b64decode(mark.encode()))
        # To UTC: PostgreSQL knows no zones as far from it as Python does.
        return datetime.fromisoformat(at).astimezone(UTC), int(pk)
    except (ValueError, TypeError, OverflowError, RecursionError):
        return None


class NewestFirst(CursorPagination):
    """The API's pages: cursor, newest first, 100 rows unless `?page_size=` asks for up to 1000."""

    ordering = "-pk"
    page_size = 100
    page_size_query_param = "page_size"
    max_page_size = 1000

    def decode_cursor(self, request: Request) -> Cursor | None:
        """Read the place in the list; one that is no number of a row is as bad as one that cannot be read."""
        cursor = super().decode_cursor(request)
        if cursor is not None and cursor.position is not None and not _is_number(str(cursor.position)):
            raise NotFound(self.invalid_cursor_message)
        return cursor


def _is_number(position: str) -> bool:
    return position.isascii() and position.isdigit() and len(position) < 20
