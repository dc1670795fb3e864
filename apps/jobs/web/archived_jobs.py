"""The list of jobs of archived months."""

from datetime import date

from django.http import HttpResponse
from django.shortcuts import render
from django.utils.datastructures import MultiValueDict
from django.views.decorators.http import require_safe

from apps.accounts.permissions import is_opg
from apps.accounts.web.http_request import AuthenticatedRequest
from apps.core.domain.pagination import newest_first, read_position
from apps.core.web.turns import one_at_a_time
from apps.jobs.domain.months.archived_records import INSTANT, JobHistory
from apps.jobs.domain.records.calendar_months import unlisted_months
from apps.jobs.domain.records.jobs import with_columns
from apps.jobs.filters import JobFilter, with_probe_choice
from apps.jobs.models import Job


@require_safe
@one_at_a_time
def archived_jobs(request: AuthenticatedRequest) -> HttpResponse:
    """List jobs of archived months, with the filters of the job list."""
    visible = Job.objects.visible_to(request.user)
    query = with_probe_choice(request.GET, JobFilter)
    jobs = JobFilter(query, queryset=visible, request=request)
    history = JobHistory(months_of(jobs, request.GET))
    shown = jobs.qs if jobs.is_valid() else visible.none()
    page = newest_first(shown, by="ended_at", query=request.GET, find=history.find)
    columns, rows = with_columns(page.rows)
    context = {
        "filter": jobs,
        "more_open": any(
            request.GET.get(name) for name in jobs.filters if name not in JobFilter.FIRST
        ),
        "columns": columns,
        "rows": rows,
        "page": page,
        "history": history,
        "sees_errors": is_opg(request.user),
    }
    return render(request, "jobs/archived/list.html", context)


def months_of(jobs: JobFilter, query: MultiValueDict[str, str]) -> list[date]:
    """Return the archived months that a page may need; none if the filter is invalid."""
    if not jobs.is_valid():
        return []
    period = jobs.form.cleaned_data
    until = period.get("ended_to")
    if position := read_position(query, jobs.queryset, "ended_at"):
        until = position[0] + INSTANT
    return unlisted_months(since=period.get("ended_from"), until=until)
