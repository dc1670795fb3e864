"""The board for other programs: with a session or, if PUBLIC_STATUS is set, for everybody."""

from django.conf import settings
from django.contrib.auth.decorators import login_not_required
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.utils import timezone
from django.views.decorators.http import require_safe

from apps.statusboard.domain.exports import badge, calendar, statuspage_summary


def _refusal(request: HttpRequest) -> HttpResponse | None:
    if settings.PUBLIC_STATUS or request.user.is_authenticated:
        return None
    return HttpResponse("Log in, or ask for PUBLIC_STATUS to be set.\n", "text/plain", 401)


@login_not_required
@require_safe
def summary(request: HttpRequest) -> HttpResponse:
    return _refusal(request) or JsonResponse(statuspage_summary(timezone.now()))


@login_not_required
@require_safe
def windows_calendar(request: HttpRequest) -> HttpResponse:
    refused = _refusal(request)
    return refused or HttpResponse(calendar(timezone.now(), request.get_host()), "text/calendar; charset=utf-8")


@login_not_required
@require_safe
def status_badge(request: HttpRequest) -> HttpResponse:
    return _refusal(request) or HttpResponse(badge(timezone.now()), "image/svg+xml")
