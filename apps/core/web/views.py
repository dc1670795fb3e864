"""Health for load balancers and monitoring (public, so it tells no more than names and ages), and what went wrong."""

import sys

from django.contrib.auth.decorators import login_not_required
from django.db import InterfaceError, OperationalError
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.template.loader import render_to_string
from django.utils import timezone
from django.views import defaults
from django.views.decorators.http import require_safe

from apps.core.domain.health import readiness


@login_not_required
@require_safe
def healthz(request: HttpRequest) -> HttpResponse:
    """Say that this process answers. Touches neither database nor queue."""
    return HttpResponse("ok\n", content_type="text/plain")


@login_not_required
@require_safe
def readyz(request: HttpRequest) -> HttpResponse:
    """Say whether database, queue, beat and capture are well: 200 or 503."""
    checks = readiness(timezone.now())
    ready = all(check.ok for check in checks)
    body = {"ready": ready, "checks": [{"name": c.name, "ok": c.ok, "detail": c.detail} for c in checks]}
    return JsonResponse(body, status=200 if ready else 503)


def bad_request(request: HttpRequest, exception: Exception) -> HttpResponse:
    """Answer what makes no sense, such as a cookie that nobody set, with 400."""
    return _of_api(request, 400, "This call makes no sense.") or defaults.bad_request(request, exception)


def not_found(request: HttpRequest, exception: Exception) -> HttpResponse:
    """Answer an address that leads nowhere with 404: tools in JSON, as of everything of the API."""
    return _of_api(request, 404, "There is nothing at this address.") or defaults.page_not_found(request, exception)


def _of_api(request: HttpRequest, status: int, detail: str) -> HttpResponse | None:
    return JsonResponse({"detail": detail}, status=status) if request.path.startswith("/api/") else None


def server_error(request: HttpRequest) -> HttpResponse:
    """Answer an error that nobody expected with 500; with 503 when only the database is away, so that tools ask again.

    Asks neither database nor session, which may be what is broken.
    """
    away = isinstance(sys.exc_info()[1], OperationalError | InterfaceError)
    status, headers = (503, {"Retry-After": "30"}) if away else (500, None)
    if request.path.startswith("/api/"):
        detail = "The database does not answer just now." if away else "Something went wrong in the portal."
        return JsonResponse({"detail": detail}, status=status, headers=headers)
    return HttpResponse(render_to_string(f"{status}.html"), status=status, headers=headers)
