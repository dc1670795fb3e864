"""Weekly reports of experiments, of all together, and of campaigns, with links from figures."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any
from urllib.parse import urlencode

from django.core.paginator import Paginator
from django.http import Http404, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_safe

from apps.accounts.domain.experiments import visible_experiments
from apps.accounts.web.http_request import AuthenticatedRequest
from apps.core.web.query import read_query_or_warn
from apps.core.web.sorting import field_order, read_sort
from apps.jobs.enums import ANY_FAILURE, NONE
from apps.production.domain.campaigns import campaigns_for
from apps.production.models import Request
from apps.progress.domain.weekly_report import WEEK, next_report, summary_sentence, week_before
from apps.progress.domain.weekly_summaries import (
    SummedWeek,
    first_day,
    week_of_campaign,
    week_of_experiments,
)
from apps.progress.models import WeeklyReport
from apps.recovery.enums import Recovery
from apps.statusboard.models import Incident

PAGE_SIZE = 50
#: How many campaigns, those of the newest requests, have a link to their week.
MOST_CAMPAIGNS = 12
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
    rows = [(report, summary_sentence(report.content)) for report in page.object_list]
    at = timezone.now()
    monday, written_at = next_report(at)
    newest_week = ""
    if len(experiments) > 1:
        visible = WeeklyReport.objects.visible_to(request.user)
        newest = visible.order_by("-monday").values_list("monday", flat=True).first()
        newest_week = f"{newest:%G-W%V}" if newest else ""
    requests = Request.objects.visible_to(request.user)
    if chosen:
        requests = requests.filter(experiment=chosen)
    context = {
        "newest_week": newest_week,
        "this_week": f"{timezone.localdate(at):%G-W%V}",
        "campaigns": campaigns_for(request.user, requests)[:MOST_CAMPAIGNS],
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
        "sentence": summary_sentence(content),
        "digest": True,
        **near,
    }
    return render(request, "progress/weekly_report.html", context)


@require_safe
def week_of_all(request: AuthenticatedRequest, week: str) -> HttpResponse:
    """Show the reports of a week together, of the experiments that the user may see."""
    monday = _monday_of(week)
    summed = week_of_experiments(request.user, monday=monday)
    if summed is None:
        raise Http404("no weekly report of this week")
    visible = WeeklyReport.objects.visible_to(request.user)
    weeks = {}
    for name, others, order in (
        ("before", visible.filter(monday__lt=monday), "-monday"),
        ("after", visible.filter(monday__gt=monday), "monday"),
    ):
        nearest = others.order_by(order).values_list("monday", flat=True).first()
        weeks[name] = _week_link("progress:week-of-all", nearest)
    return _summed_page(request, summed, digest=True, **weeks)


@require_safe
def campaign_week(request: AuthenticatedRequest, key: str, week: str) -> HttpResponse:
    """Show a week of the campaign `?name=` of an experiment, as of now.

    Without a name, its campaigns are listed.
    """
    monday = _monday_of(week)
    at = timezone.now()
    get_object_or_404(visible_experiments(request.user), key=key)
    name = request.GET.get("name", "")
    if not name:
        campaigns = reverse("production:campaigns")
        return redirect(f"{campaigns}?{urlencode({'experiment': key})}")
    summed = week_of_campaign(request.user, experiment=key, name=name, monday=monday, at=at)
    if summed is None:
        raise Http404("no such campaign, or a week that has not begun")
    query = {"name": name}
    before = _week_link("progress:week-of-campaign", monday - WEEK, key, query=query)
    after = None
    if monday + WEEK <= timezone.localdate(at):
        after = _week_link("progress:week-of-campaign", monday + WEEK, key, query=query)
    return _summed_page(
        request,
        summed,
        before=before,
        after=after,
        campaign_url=f"{reverse('production:request-list')}?"
        + urlencode({"experiment": key, "campaign": name}),
    )


def _summed_page(request: AuthenticatedRequest, summed: SummedWeek, **context: Any) -> HttpResponse:
    context |= {
        "object": summed,
        "report": _with_links(summed.content),
        "sentence": summary_sentence(summed.content),
    }
    return render(request, "progress/weekly_report.html", context)


@dataclass(frozen=True)
class WeekLink:
    """Another week, for the buttons at the top of a report."""

    week: str
    url: str

    def get_absolute_url(self) -> str:
        return self.url


def _week_link(
    name: str, monday: date | None, *parts: str, query: Mapping[str, str] | None = None
) -> WeekLink | None:
    if monday is None:
        return None
    week = f"{monday:%G-W%V}"
    url = reverse(name, args=[*parts, week])
    return WeekLink(week, f"{url}?{urlencode(query)}" if query else url)


def _monday_of(week: str) -> date:
    """Return the first day of an ISO 8601 week such as `2026-W47`. Raises `Http404`."""
    try:
        return first_day(week)
    except ValueError as error:
        raise Http404("no week") from error


def _with_links(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return the content with `links` to jobs by kind of list, and the `url` of other rows.

    Rows of several experiments name theirs. A part that a report does not have stays away.
    """
    of_week = {"ended_from": content["since"], "ended_to": content["until"]}
    if "experiment" in content:
        of_week = {"experiment": content["experiment"], **of_week}
    stages = []
    for stage in content["stages"]:
        of_stage = {**of_week, "stage": stage["stage"] or NONE}
        if "experiment" in stage:
            of_stage["experiment"] = stage["experiment"]
        stages.append({**stage, "links": _to_jobs(of_stage)})
    outages = []
    for outage in content.get("outages", ()):
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
    of_week = {}
    if "experiment" in content:
        of_week["experiment"] = content["experiment"]
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
