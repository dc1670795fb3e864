"""The monthly calendar of maintenance windows and incidents."""

from datetime import date, timedelta

from django.http import HttpResponse
from django.shortcuts import get_object_or_404, render
from django.utils import timezone
from django.views.decorators.http import require_safe

from apps.accounts.web.http_request import AuthenticatedRequest
from apps.core.domain.dates import in_range
from apps.core.web.query import read_query_or_warn
from apps.statusboard.domain.board.calendar import month_of_services
from apps.statusboard.models import Service
from apps.statusboard.permissions import may_run_board


@require_safe
def calendar(request: AuthenticatedRequest) -> HttpResponse:
    """Show a month, by default the current one, for all services or one.

    Query parameters: `?month=2026-11`, `?service=SLUG`.
    """
    at = timezone.now()
    zone = timezone.get_current_timezone()
    today = at.astimezone(zone).date()
    month = read_query_or_warn(
        request, "month", _month, expected="a month such as 2026-11"
    ) or today.replace(day=1)
    slug = request.GET.get("service", "")
    context = {
        "at": at,
        "today": today,
        "month": month,
        "earlier": month - timedelta(days=1),
        "later": month + timedelta(days=31),
        "weeks": month_of_services(month, at=at, zone=zone, slug=slug),
        "services": Service.objects.order_by("name"),
        "service": get_object_or_404(Service, slug=slug) if slug else None,
        "may_run_board": may_run_board(request.user),
    }
    return render(request, "statusboard/calendar.html", context)


def _month(text: str) -> date | None:
    """Parse a month within the years that users may enter; None if invalid."""
    try:
        day = date.fromisoformat(f"{text}-01")
    except ValueError:
        return None
    return day if in_range(day) else None
