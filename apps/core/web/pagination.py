"""Pages of long lists."""

from functools import cached_property
from typing import Any

from django.core.paginator import Page, Paginator
from django.db.models import Count, QuerySet, Window


class KeysFirst(Paginator):
    """Reads the keys of a page first, then joins only the `rows` with these keys.

    Django would also join and sort all rows before the page, and run each search twice, once to
    count.
    """

    #: Up to this number, search results are counted by reading their keys.
    most = 1_000

    def __init__(
        self,
        queryset: QuerySet[Any],
        per_page: int,
        *,
        rows: QuerySet[Any],
        last: int | None = None,
        known_count: int | None = None,
        **more: Any,
    ) -> None:
        """Paginate `queryset` up to row `last`, if set; later rows are not counted either.

        `known_count` is the number of rows if the caller knows it; then they are not counted.
        """
        super().__init__(queryset, per_page, **more)
        self.known_count = known_count
        self.keys = queryset.values_list("pk", flat=True)
        self.rows = rows
        self.last = last

    @cached_property
    def first_keys(self) -> list[Any]:
        """Return the first keys of a filtered list, one more than `most`; else none."""
        if not self.keys.query.where or self.known_count is not None:
            return []
        return list(self.keys[: self.most + 1])

    @cached_property
    def count(self) -> int:
        if self.known_count is not None:
            return self.known_count
        if self.keys.query.where and len(self.first_keys) <= self.most:
            return len(self.first_keys)
        return self.keys.order_by()[: self.last].count()

    def page(self, number: int | str) -> Page[Any]:
        number = self.validate_number(number)
        start = (number - 1) * self.per_page
        end = min(number * self.per_page, self.count)
        if end <= len(self.first_keys):
            keys = self.first_keys[start:end]
        else:
            keys = list(self.keys[start:end])
        rows = self.rows.in_bulk(keys)
        return Page([rows[key] for key in keys if key in rows], int(number), self)


class KeysCountedFirst(KeysFirst):
    """Reads the first keys and counts all rows in one query.

    For searches that take long to decide which rows match. Where they are quick, counting the
    rows apart is faster.
    """

    @cached_property
    def keys_and_count(self) -> list[tuple[Any, int]]:
        """Return the first keys, each with the number of all rows."""
        counted = self.keys.annotate(rows_in_all=Window(Count("pk")))
        return list(counted.values_list("pk", "rows_in_all")[: self.most + 1])

    @cached_property
    def first_keys(self) -> list[Any]:
        return [key for key, _ in self.keys_and_count]

    @cached_property
    def count(self) -> int:
        return self.keys_and_count[0][1] if self.keys_and_count else 0
