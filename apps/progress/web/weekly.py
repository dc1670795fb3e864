"""Weekly reports of experiments: the list, and a report with links from its figures."""

from collections.abc import Mapping
from datetime import date, datetime
from typing import Any
from urllib.parse import urlencode

from django.core.paginator import Paginator
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_safe

from apps.accounts.domain import visible_experiments
from apps.accounts.web.http_request import AuthenticatedRequest
from apps.core.web.query import read_query_or_warn
from apps.core.web.sorting import field_order, read_sort
from apps.jobs.enums import ANY_FAILURE, NONE
from apps.production.models import Request
from apps.progress.domain.weekly_report import next_report, sentence_of, week_before
from apps.progress.models import WeeklyReport
from apps.recovery.enums import Recovery
from apps.statusboard.models import Incident

PAGE_SIZE = 50
#: The columns by which reports can be sorted, with their fields.
REPORT_ORDERS = {
    "week": "monday",
    "experiment": "experiment__key",
    "jobs": "content__jobs__jobs",
}
_REQUESTS = {"submitted": "Submitted", "closed": "Closed", "late": "Late"}


@require_safe
def weekly_reports(request: AuthenticatedRequest) -> HttpResponse:
    """List the reports, newest first. `?experiment=` lists those of one experiment."""
    experiments = {experiment.key: experiment for experiment in visible_experiments(request.user)}
    chosen = read_query_or_warn(request, "experiment", experiments.get, expected="an experiment")
    reports = WeeklyReport.objects.visible_to(request.user).select_related("experiment")
    if chosen:
        reports = reports.filter(experiment=chosen)
    sort = read_sort(request, REPORT_ORDERS, default="-week")
    by = field_order(sort, REPORT_ORDERS)
    page = Paginator(reports.order_by(by, "-monday", "experiment__key"), PAGE_SIZE).get_page(
        request.GET.get("page")
    )
    rows = [(report, sentence_of(report.content)) for report in page.object_list]
    at = timezone.now()
    monday, written_at = next_report(at)
    context = {
        "last_monday": week_before(at),
        "next_monday": monday,
        "next_written_at": written_at,
        "experiments": experiments.values(),
        "chosen": chosen,
        "page": page,
        "rows": rows,
        "sort": sort,
    }
    return render(request, "progress/weekly_reports.html", context)


@require_safe
def weekly_report(request: AuthenticatedRequest, key: str, week: str) -> HttpResponse:
    """Show the report of an experiment for an ISO 8601 week."""
    mine = (
        WeeklyReport.objects.visible_to(request.user)
        .filter(experiment__key=key)
        .select_related("experiment")
    )
    report: WeeklyReport = get_object_or_404(mine, content__week=week)
    near = {
        "before": mine.filter(monday__lt=report.monday).order_by("-monday").first(),
        "after": mine.filter(monday__gt=report.monday).order_by("monday").first(),
    }
    content = report.content
    # A frozen report: links state that they show current jobs.
    context = {
        "object": report,
        "report": _with_links(content),
        "sentence": sentence_of(content),
        "digest": True,
        **near,
    }
    return render(request, "progress/weekly_report.html", context)


def _with_links(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return the content with `links` to jobs by kind of list, and the `url` of other rows."""
    of_week = {
        "experiment": content["experiment"],
        "ended_from": content["since"],
        "ended_to": content["until"],
    }
    stages = []
    for stage in content["stages"]:
        stages.append({**stage, "links": _to_jobs({**of_week, "stage": stage["stage"] or NONE})})
    outages = []
    for outage in content["outages"]:
        outages.append({**outage, "url": Incident(pk=outage["incident"]).get_absolute_url()})
    requests = []
    for name, label in _REQUESTS.items():
        for row in content["requests"][name]:
            requests.append((label, {**row, "url": Request(key=row["request"]).get_absolute_url()}))
    jobs = {**content["jobs"], "links": _to_jobs(of_week)}
    shown = {**content, "jobs": jobs, "stages": stages, "outages": outages, "requests": requests}
    # Reports frozen by earlier versions have no recoveries.
    if "recovery" in content:
        shown["recovery"] = _recovery_with_links(content)
    return shown


def _recovery_with_links(content: Mapping[str, Any]) -> dict[str, Any]:
    recovery = content["recovery"]
    monday = datetime.fromisoformat(content["since"]).date()
    of_week = {"experiment": content["experiment"]}
    causes = []
    for cause in recovery["causes"]:
        links = _to_recoveries(monday, {**of_week, "category": cause["category"]})
        causes.append({**cause, "saved_seconds": cause["saved_minutes"] * 60, "links": links})
    return {
        **recovery,
        "saved_seconds": recovery["saved_minutes"] * 60,
        "links": _to_recoveries(monday, of_week),
        "causes": causes,
    }


def _to_recoveries(monday: date, query: Mapping[str, str]) -> dict[str, str]:
    failures = reverse("recovery:week", args=[monday])
    return {
        "jobs": f"{failures}?{urlencode(query)}",
        "by_rule": f"{failures}?{urlencode({**query, 'recovery': Recovery.BY_RULE.value})}",
    }


def _to_jobs(query: Mapping[str, str]) -> dict[str, str]:
    jobs = reverse("jobs:list")
    return {
        "jobs": f"{jobs}?{urlencode(query)}",
        "failed": f"{jobs}?{urlencode({'state': ANY_FAILURE, **query})}",
    }
