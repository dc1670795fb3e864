"""The page of a service."""

from datetime import date

from django.http import HttpResponse
from django.shortcuts import get_object_or_404, render
from django.utils import timezone
from django.views.decorators.http import require_safe

from apps.accounts.web.http_request import AuthenticatedRequest
from apps.core.domain.dates import in_range
from apps.core.domain.pagination import newest_first
from apps.core.web.query import read_query
from apps.portal.pages.service import service_page
from apps.statusboard.domain.incidents.incidents import incidents_of
from apps.statusboard.models import Service


@require_safe
def service_detail(request: AuthenticatedRequest, slug: str) -> HttpResponse:
    service = get_object_or_404(Service.objects.select_related("source", "parent"), slug=slug)
    zone = timezone.get_current_timezone()
    day = read_query(request, "day", _day, expected="a date such as 2026-11-22")
    incidents = newest_first(
        incidents_of(service, day, zone), by="started_at", query=request.GET, size=10
    )
    page = service_page(service=service, user=request.user, at=timezone.now(), zone=zone)
    context = {**vars(page), "day": day, "page": incidents}
    return render(request, "portal/service.html", context)


def _day(text: str) -> date | None:
    """Parse a date in the range that users may enter; None if invalid."""
    try:
        day = date.fromisoformat(text)
    except ValueError:
        return None
    return day if in_range(day) else None
