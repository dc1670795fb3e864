"""Cursor pagination of the API: without a count, and equally fast on every page."""

from typing import Any

from django.core.exceptions import ValidationError
from rest_framework import exceptions
from rest_framework.pagination import Cursor, CursorPagination
from rest_framework.request import Request


class NewestFirst(CursorPagination):
    """Cursor pagination, newest first, 100 rows by default and at most 1,000 (`?page_size=`).

    The view's `orderings` maps names for `?ordering=` to columns without nulls and with few equal
    values.
    """

    ordering: Any = "-pk"
    page_size = 100
    page_size_query_param = "page_size"
    max_page_size = 1000

    def get_ordering(self, request: Request, queryset: Any, view: Any) -> tuple[str, ...]:
        names: dict[str, str] = getattr(view, "orderings", {})
        chosen = request.query_params.get("ordering", "")
        if not chosen:
            return ("-pk",)
        if chosen.removeprefix("-") not in names:
            raise exceptions.ValidationError(
                {"ordering": [f"Choose one of: {', '.join(_both(names))}."]}
            )
        return f"{'-' if chosen[0] == '-' else ''}{names[chosen.removeprefix('-')]}", "-pk"

    def paginate_queryset(self, queryset: Any, request: Request, view: Any = None) -> Any:
        try:
            return super().paginate_queryset(queryset, request, view)
        except (
            ValidationError,
            ValueError,
        ):
            # The cursor's position is not a value of this column.
            raise exceptions.NotFound(self.invalid_cursor_message) from None

    def decode_cursor(self, request: Request) -> Cursor | None:
        """Reject a cursor whose position is not a row ID, like an unreadable one."""
        cursor = super().decode_cursor(request)
        if cursor is None or cursor.position is None:
            position = "0"
        else:
            position = str(cursor.position)
        if self.ordering == ("-pk",) and not (
            position.isascii() and position.isdigit() and len(position) < 20
        ):
            raise exceptions.NotFound(self.invalid_cursor_message)
        return cursor

    def get_schema_operation_parameters(self, view: Any) -> list[dict[str, Any]]:
        parameters: list[dict[str, Any]] = super().get_schema_operation_parameters(view)
        if names := getattr(view, "orderings", {}):
            schema = {"type": "string", "enum": _both(names)}
            description = "Order of the list. Default: newest first."
            parameters.append(
                {
                    "name": "ordering",
                    "in": "query",
                    "required": False,
                    "description": description,
                    "schema": schema,
                }
            )
        return parameters


def _both(names: dict[str, str]) -> list[str]:
    both = []
    for name in names:
        both += [name, f"-{name}"]
    return both
