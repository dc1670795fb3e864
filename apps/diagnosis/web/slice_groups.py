"""The failure groups on the page of a host, site or user."""

from django.http import Http404, HttpResponse
from django.shortcuts import render
from django.utils import timezone
from django.views.decorators.http import require_safe

from apps.accounts.web.http_request import AuthenticatedRequest
from apps.core.web.query import read_query_or_warn
from apps.diagnosis.domain.groups.of_slice import groups_of_slice, sees_slice
from apps.jobs.domain.records.conversion import last_hours
from apps.jobs.domain.statistics.questions import PERIODS
from apps.jobs.domain.statistics.slices import TABLES


@require_safe
def slice_groups(request: AuthenticatedRequest, kind: str, name: str) -> HttpResponse:
    """Show the failure groups of a slice; the page of the slice loads them."""
    kinds = {slice_kind: slice_kind for slice_kind in TABLES}
    if kind not in kinds:
        raise Http404
    periods = {period: period for period in PERIODS}
    expected = f"one of {', '.join(PERIODS)}"
    period = read_query_or_warn(request, "period", periods.get, expected=expected) or "7d"
    since, _ = last_hours(timezone.now(), PERIODS[period])
    groups, jobs = groups_of_slice(kinds[kind], name, user=request.user, since=since)
    if not jobs and not sees_slice(kinds[kind], name, request.user):
        raise Http404
    template = "_slice_groups.html" if request.htmx else "slice_groups.html"
    context = {"kind": kind, "name": name, "groups": groups, "jobs": jobs}
    return render(request, f"diagnosis/{template}", context)
