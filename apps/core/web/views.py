"""Public health checks, limited to names and ages, and error responses."""

import sys

from django.contrib.auth.decorators import login_not_required
from django.db import OperationalError
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.template.loader import render_to_string
from django.views import defaults
from django.views.decorators.http import require_safe
from django_guid import get_guid
from psycopg.errors import QueryCanceled

from apps.core.domain.health import check_readiness
from apps.core.web.lost_connections import is_lost, is_unavailable, mark_lost


@login_not_required
@require_safe
def healthz(request: HttpRequest) -> HttpResponse:
    """Respond without using database or queue."""
    return HttpResponse("ok\n", content_type="text/plain")


@login_not_required
@require_safe
def readyz(request: HttpRequest) -> HttpResponse:
    """Report whether this process can serve requests: database, schema, queue.

    Returns 200 or 503. Other processes do not count.
    """
    checks = check_readiness()
    ready = all(check.ok for check in checks)
    body = {
        "ready": ready,
        "checks": [{"name": c.name, "ok": c.ok, "detail": c.detail} for c in checks],
    }
    return JsonResponse(body, status=200 if ready else 503)


def bad_request(request: HttpRequest, exception: Exception) -> HttpResponse:
    """Respond with 400 to a malformed request, such as one with a tampered cookie."""
    return _api_error(request, 400, "Bad request.") or defaults.bad_request(request, exception)


def not_found(request: HttpRequest, exception: Exception) -> HttpResponse:
    """Respond with 404 to an unknown URL, in JSON below `/api/`."""
    return _api_error(request, 404, "Not found.") or defaults.page_not_found(request, exception)


def _api_error(request: HttpRequest, status: int, detail: str) -> HttpResponse | None:
    if not request.path.startswith("/api/"):
        return None
    return JsonResponse({"detail": detail}, status=status)


def server_error(request: HttpRequest) -> HttpResponse:
    """Respond with 500 to an unexpected error, or with 503 if a retry may succeed.

    That is if the database is unavailable or too slow. The response uses neither database nor
    session, which may be the cause.
    """
    error = sys.exc_info()[1]
    may_succeed = is_unavailable(error)
    too_long = isinstance(error, OperationalError) and isinstance(error.__cause__, QueryCanceled)
    status = 503 if may_succeed else 500
    # A request that took too long would do so again.
    headers = {"Retry-After": "30"} if may_succeed and not too_long else None
    if is_lost(error):
        mark_lost(request)
    if request.path.startswith("/api/"):
        if may_succeed:
            detail = "The database is unavailable. Try again later."
        else:
            detail = "Internal error."
        if too_long:
            detail = "This took too long and was stopped. Ask for less, such as a shorter period."
        return JsonResponse({"detail": detail}, status=status, headers=headers)
    context = {
        "too_long": too_long,
        "is_repeatable": request.method in {"GET", "HEAD"},
        "request_id": get_guid(),
    }
    return HttpResponse(render_to_string(f"{status}.html", context), status=status, headers=headers)
