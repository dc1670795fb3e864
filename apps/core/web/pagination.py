"""Pages of long lists."""

from functools import cached_property
from typing import Any

from django.core.paginator import Page, Paginator
from django.db.models import QuerySet


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
    def all_keys(self) -> list[Any] | None:
        """Return the keys of a filtered list; None without a filter or with too many results."""
        keys = None
        if self.keys.query.where and self.known_count is None:
            keys = list(self.keys[: self.most + 1])
        return keys if keys is not None and len(keys) <= self.most else None

    @cached_property
    def count(self) -> int:
        if self.known_count is not None:
            return self.known_count
        if self.all_keys is not None:
            return len(self.all_keys)
        return self.keys.order_by()[: self.last].count()

    def page(self, number: int | str) -> Page[Any]:
        number = self.validate_number(number)
        part = slice((number - 1) * self.per_page, min(number * self.per_page, self.count))
        keys = list(self.keys[part] if self.all_keys is None else self.all_keys[part])
        rows = self.rows.in_bulk(keys)
        return Page([rows[key] for key in keys if key in rows], int(number), self)
