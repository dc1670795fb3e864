"""Cursor pagination of the API: no count, and as fast at the end as at the start."""

from rest_framework.exceptions import NotFound
from rest_framework.pagination import Cursor, CursorPagination
from rest_framework.request import Request


class NewestFirst(CursorPagination):
    """The API's pages: cursor, newest first, 100 rows unless `?page_size=` asks for up to 1000."""

    ordering = "-pk"
    page_size = 100
    page_size_query_param = "page_size"
    max_page_size = 1000

    def decode_cursor(self, request: Request) -> Cursor | None:
        """Refuse a cursor whose position is not a row id, like an unreadable one."""
        cursor = super().decode_cursor(request)
        position = "0" if cursor is None or cursor.position is None else str(cursor.position)
        if not (position.isascii() and position.isdigit() and len(position) < 20):
            raise NotFound(self.invalid_cursor_message)
        return cursor
