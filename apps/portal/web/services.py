"""The page of a service."""

from datetime import UTC, date, datetime

from django.db.models import CharField, DateTimeField, Value
from django.db.models.functions import Coalesce
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, render
from django.utils import timezone
from django.views.decorators.http import require_safe

from apps.accounts.web.http_request import AuthenticatedRequest
from apps.core.domain.dates import in_range
from apps.core.domain.pagination import in_order
from apps.core.web.query import read_query_or_warn
from apps.core.web.sorting import field_order, read_sort
from apps.portal.pages.service import service_page
from apps.statusboard.domain.incidents.incidents import incidents_of
from apps.statusboard.models import Service

_NEVER = datetime(9999, 1, 1, tzinfo=UTC)
#: The columns by which the incidents of a service can be sorted, with their fields.
INCIDENT_ORDERS = {
    "incident": "title",
    "state": "state",
    "started": "started_at",
    "ended": "last_at",
    "source": "reported_by",
}


@require_safe
def service_detail(request: AuthenticatedRequest, slug: str) -> HttpResponse:
    service = get_object_or_404(Service.objects.select_related("source", "parent"), slug=slug)
    zone = timezone.get_current_timezone()
    day = read_query_or_warn(request, "day", _day, expected="a date such as 2026-11-22")
    sort = read_sort(request, INCIDENT_ORDERS, default="-started")
    incidents = in_order(
        incidents_of(service, day, zone).annotate(
            # Open incidents end after all others.
            last_at=Coalesce("ended_at", Value(_NEVER), output_field=DateTimeField()),
            reported_by=Coalesce("source__name", "opened_by", output_field=CharField()),
        ),
        by=field_order(sort, INCIDENT_ORDERS),
        query=request.GET,
        size=10,
    )
    page = service_page(service=service, user=request.user, at=timezone.now(), zone=zone)
    context = {**vars(page), "day": day, "page": incidents, "sort": sort}
    return render(request, "portal/service.html", context)


def _day(text: str) -> date | None:
    """Parse a date in the range that users may enter; None if invalid."""
    try:
        day = date.fromisoformat(text)
    except ValueError:
        return None
    return day if in_range(day) else None
