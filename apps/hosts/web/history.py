"""The history of a host, which the page of the host loads."""

from django.http import HttpResponse
from django.shortcuts import render
from django.utils import timezone
from django.views.decorators.http import require_safe

from apps.accounts.web.http_request import AuthenticatedRequest
from apps.core.web.query import number_in
from apps.hosts.domain.history_rows import COUNTED_DAYS, history_page


@require_safe
def history(request: AuthenticatedRequest, name: str) -> HttpResponse:
    """Show when a host was down, drained, excluded or rebooted, and how many jobs failed then."""
    at = timezone.now()
    number = number_in(request.GET, "page") or 1
    page = history_page(name, user=request.user, number=number, at=at)
    context = {"name": name, "page": page, "counted_days": COUNTED_DAYS}
    template = "_history.html" if request.htmx else "history.html"
    return render(request, f"hosts/{template}", context)
