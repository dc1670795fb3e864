"""The job list and the week's report. One job's own page is in `portal`."""

from django.http import HttpResponse
from django.shortcuts import render
from django.utils import timezone
from django.views.decorators.http import require_safe

from apps.accounts.permissions import is_opg
from apps.accounts.web.http_request import AuthenticatedRequest
from apps.core.domain.pagination import newest_first
from apps.jobs.domain import totals
from apps.jobs.domain.jobs import collections, jobs_for_list, totals_as_of
from apps.jobs.filters import JobFilter
from apps.jobs.web.charts import HEIGHT, WIDTH, columns


@require_safe
def job_list(request: AuthenticatedRequest) -> HttpResponse:
    jobs = JobFilter(request.GET, queryset=jobs_for_list(request.user), request=request)
    shown = jobs.qs if jobs.is_valid() else jobs.queryset.none()
    context = {
        "filter": jobs,
        "filtered": any(value not in (None, "") for value in jobs.form.cleaned_data.values()) or not jobs.is_valid(),
        "more_open": any(request.GET.get(name) for name in jobs.filters if name not in JobFilter.FIRST),
        "page": newest_first(shown, by="ended_at", query=request.GET),
        "collections": collections(),
        "sees_errors": is_opg(request.user),
    }
    return render(request, "jobs/job_list.html", context)


@require_safe
def reports(request: AuthenticatedRequest) -> HttpResponse:
    report = totals.week(request.user, at=timezone.now(), zone=timezone.get_current_timezone())
    context = {
        "report": report,
        "bars": columns(report.by_day),
        "width": WIDTH,
        "height": HEIGHT,
        "as_of": totals_as_of(),
    }
    return render(request, "jobs/reports.html", context)
