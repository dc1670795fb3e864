"""Requests whose connection to PostgreSQL was lost: GET and HEAD are answered by a second try."""

from collections.abc import Callable

from django.db import Error, InterfaceError, OperationalError, close_old_connections
from django.http import HttpRequest, HttpResponse
from psycopg.errors import ConnectionTimeout, QueryCanceled, ReadOnlySqlTransaction


def is_unavailable(error: BaseException | None) -> bool:
    """Return whether an error means that the database is down, too slow or read-only."""
    return isinstance(error, OperationalError | InterfaceError) or _is_read_only(error)


def is_lost(error: BaseException | None) -> bool:
    """Return whether a connection was lost, or its server became read-only.

    Another connection may work at once. It would not after a failure to connect.
    """
    if isinstance(error, InterfaceError) or _is_read_only(error):
        return True
    cause = error.__cause__ if isinstance(error, OperationalError) else None
    if cause is None or isinstance(cause, ConnectionTimeout | QueryCanceled):
        return False
    sqlstate = getattr(cause, "sqlstate", None) or ""
    if sqlstate:
        # 57P0x: the server is shut down; 08: errors of the connection.
        return sqlstate.startswith(("57P0", "08"))
    # The driver gives its connection to errors of connecting alone.
    return getattr(cause, "pgconn", None) is None


def _is_read_only(error: BaseException | None) -> bool:
    return isinstance(error, Error) and isinstance(error.__cause__, ReadOnlySqlTransaction)


def mark_lost(request: HttpRequest) -> None:
    """Note for `RetryMiddleware` that the request failed because a connection was lost."""
    request.has_lost_connection = True  # type: ignore[attr-defined]


class RetryMiddleware:
    """Repeats a GET or HEAD request once if its connection was lost.

    It must be outside of what keeps state of a request, such as its session. Other methods are
    never repeated: what they changed may be committed.
    """

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        """Return the response of the first try, or of the second one."""
        # What the first try leaves in the request, such as its user, is not used again.
        fresh_environ = dict(request.META)
        response = self.get_response(request)
        is_repeatable = request.method in {"GET", "HEAD"}
        if not (is_repeatable and getattr(request, "has_lost_connection", False)):
            return response
        close_old_connections()
        return self.get_response(type(request)(fresh_environ))  # type: ignore[call-arg]
