"""Health for load balancers and monitoring. Public, so it tells no more than names and ages."""

from django.contrib.auth.decorators import login_not_required
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.utils import timezone
from django.views.decorators.http import require_safe

from apps.core.selectors import readiness


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
