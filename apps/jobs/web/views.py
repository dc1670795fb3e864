"""The job list and claims of jobs. The page of one job is in `portal`."""

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from operator import attrgetter
from typing import Any

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet, Sum
from django.forms import Form
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.views.decorators.http import require_POST, require_safe

from apps.accounts.models import User
from apps.accounts.permissions import is_opg
from apps.accounts.web.http_request import AuthenticatedRequest
from apps.accounts.web.saved_views import views_context
from apps.clusters.models import Cluster
from apps.clusters.schedulers.base import CurrentState
from apps.core.charts import spans_powers
from apps.core.domain.pagination import in_order, newest_first
from apps.core.web.errors import show_errors
from apps.core.web.query import read_query_or_warn
from apps.core.web.sorting import field_order, read_sort, sort_rows
from apps.jobs.domain.collection import claims as domain
from apps.jobs.domain.collection.flagged import KEPT, flagged_reasons, flagged_records
from apps.jobs.domain.live.live import live_counts, live_reasons
from apps.jobs.domain.live.queue import queue_known
from apps.jobs.domain.phases.stuck import stuck_phases
from apps.jobs.domain.phases.totals import MOST_ROWS, phase_sums
from apps.jobs.domain.records.calendar_months import unlisted_months
from apps.jobs.domain.records.conversion import last_hours
from apps.jobs.domain.records.jobs import (
    MOST_SORTED,
    collections_behind,
    jobs_for_list,
    list_collections,
    newest_to_sort,
    totals_as_of,
    with_columns,
)
from apps.jobs.domain.statistics.questions import MEASURES, Question
from apps.jobs.domain.totals import totals
from apps.jobs.enums import ProbeJobs
from apps.jobs.filters import JobFilter, ListedJobs, with_probe_choice
from apps.jobs.models import HourlyEnds, HourlyTotals
from apps.jobs.web import explorer_charts as charts
from apps.jobs.web.forms import AcceptClaimsForm, WithdrawClaimsForm
from apps.production.domain.actors import may
from apps.production.enums import Actor
from apps.production.models import Request
from apps.production.web.lookup import request_or_404

#: The columns by which finished jobs can be sorted, with their fields.
JOB_ORDERS = {
    "finished": "ended_at",
    "wall": "wall_seconds",
    "core": "used_core_seconds",
}
NEWEST_FIRST = "-finished"
#: The columns by which the phases of stages can be sorted.
PHASE_ORDERS = {
    "request": attrgetter("request_key"),
    "phase": attrgetter("name"),
    "wall": attrgetter("wall_seconds"),
    "mean": attrgetter("mean_seconds"),
    "longest": attrgetter("longest_seconds"),
    "phases": attrgetter("phases"),
    "failed": attrgetter("failed"),
}
#: Period of the trend of queue times.
_TREND = timedelta(days=7)
#: Maximum stuck phases on their page.
_MOST_STUCK = 100
_PERIODS = ((1, "last 24 hours"), (7, "last 7 days"), (30, "last 30 days"), (90, "last 90 days"))
#: Tabs of unfinished jobs, with the heading of their reasons.
LIVE_TABS = {
    CurrentState.QUEUED: "Why are jobs queued?",
    CurrentState.RUNNING: "Running",
    CurrentState.HELD: "Held, by reason",
}


@require_safe
def job_list(request: AuthenticatedRequest) -> HttpResponse:
    tabs = {str(tab): tab for tab in LIVE_TABS}
    if tab := read_query_or_warn(request, "tab", tabs.get, expected=f"one of {', '.join(tabs)}"):
        return _live(request, tab)
    query = with_probe_choice(request.GET, ListedJobs)
    jobs = ListedJobs(query, queryset=jobs_for_list(request.user), request=request)
    shown = jobs.qs if jobs.is_valid() else jobs.queryset.none()
    sort = read_sort(request, JOB_ORDERS, default=NEWEST_FIRST)
    column = sort.removeprefix("-")
    if column != "finished":
        shown = newest_to_sort(shown).select_related("cluster", "experiment", "site")
    page = in_order(shown, by=field_order(sort, JOB_ORDERS), query=request.GET)
    columns, rows = with_columns(page.rows)
    context = {
        "filter": jobs,
        "tabs": live_tabs(request, ""),
        "filtered": bool(_used_filters(jobs)) or not jobs.is_valid(),
        "columns": columns,
        "rows": rows,
        **(_totals(request, jobs) if jobs.is_valid() else {}),
        "more_open": any(
            request.GET.get(name) for name in jobs.filters if name not in JobFilter.FIRST
        ),
        "page": page,
        "sort": sort,
        "most_sorted": None if column == "finished" else MOST_SORTED,
        "unlisted": unlisted_months(
            since=_filter_value(jobs, "ended_from"), until=_filter_value(jobs, "ended_to")
        ),
        "collections": list_collections(),
        "sees_errors": is_opg(request.user),
        **views_context(request),
    }
    return render(request, "jobs/job_list.html", context)


def _filter_value(jobs: JobFilter, name: str) -> datetime | None:
    """Return the value of a filter if it is set and valid."""
    value: datetime | None = None
    if jobs.is_valid():
        value = jobs.form.cleaned_data.get(name)
    return value


def _used_filters(jobs: JobFilter) -> set[str]:
    """Return the names of the filters that leave jobs out, but for hidden probe jobs."""
    used = {name for name, value in jobs.form.cleaned_data.items() if value not in (None, "")}
    if jobs.form.cleaned_data.get("probes") != ProbeJobs.ONLY:
        used.discard("probes")
    return used


def _live(request: AuthenticatedRequest, state: CurrentState) -> HttpResponse:
    read_at, missing = queue_known()
    reasons = live_reasons(request.user, state)
    context: dict[str, Any] = {
        "state": state.value,
        "heading": LIVE_TABS[state],
        "reasons": reasons,
        "most": max((reason.jobs for reason in reasons), default=1),
        "tabs": live_tabs(request, state.value),
        "read_at": read_at,
        "missing": missing,
        "sees_errors": is_opg(request.user),
    }
    if state == CurrentState.QUEUED:
        context |= _queue_times(request.user, timezone.now())
    elif state == CurrentState.RUNNING:
        context["clusters"] = Cluster.objects.filter(collects=True).order_by("name")
    return render(request, "jobs/live.html", context)


def _queue_times(user: User, at: datetime) -> dict[str, Any]:
    """Return the queue times of jobs that finished in the last days, by hour, and of the last day.

    These are medians: in a mean, an import of old jobs or one job held for weeks would hide all
    others. If the medians still spread widely, the scale is logarithmic.
    """
    from apps.jobs.domain.statistics.explorer import Explorer

    explorer = Explorer(user)
    since, until = last_hours(at, _TREND.days * 24)
    measure = replace(MEASURES["queue_time"], label="median queue time")
    question = Question(measure, (), since, until)
    steps = explorer.series(question, step_hours=1, dimension="")
    medians = explorer.medians(question)
    # The chart divides by the number of started jobs.
    for hour, rows in steps.items():
        queued = [round(medians.get(hour, 0) * row.sums["started"]) for row in rows]
        rows[:] = [
            replace(row, sums={**row.sums, "queued_seconds": seconds})
            for row, seconds in zip(rows, queued, strict=True)
        ]

    is_log = spans_powers(medians.values())
    trend = charts.chart_over_time(question, steps, step=1, dimension="", rate="", is_log=is_log)
    return {
        "trend": trend.chart if medians else "",
        "trend_is_log": is_log,
        "trend_unit": charts.axis_unit(question.measure),
        "trend_days": _TREND.days,
        "trend_last_day": explorer.median(replace(question, since=until - timedelta(hours=24))),
        "trend_as_of": totals_as_of(),
    }


def live_tabs(request: AuthenticatedRequest, chosen: str) -> list[dict[str, Any]]:
    """Return the tabs of jobs by state with their numbers; `chosen` is the value of a state."""
    counts = live_counts(request.user)
    since, until = last_hours(timezone.now(), 24)
    ended = (
        HourlyEnds.objects.visible_to(request.user)
        .filter(hour__gte=since, hour__lt=until)
        .aggregate(jobs=Sum("jobs", default=0))
    )
    tabs = []
    for state in LIVE_TABS:
        tabs.append(
            {
                "name": state.value.capitalize(),
                "query": f"?tab={state.value}",
                "jobs": counts[state],
                "on": state == chosen,
            }
        )
    return [
        *tabs,
        {
            "name": "Finished",
            "query": "",
            "jobs": ended["jobs"],
            "on": not chosen,
            "note": "in 24 h",
        },
    ]


def _totals(request: AuthenticatedRequest, jobs: JobFilter) -> dict[str, Any]:
    """Return the totals of a job list, from hourly totals or else counted up to a limit.

    Without a request filter, hourly totals cover the last 24 hours. These cannot tell probe jobs
    from others: they include them, as do the lists that they link to.
    """
    used = _used_filters(jobs)
    query: dict[str, str | list[str]] = {name: request.GET.getlist(name) for name in sorted(used)}
    if not used <= {"experiment", "cluster", "state", "request", "stage"} or used & {
        "request",
        "stage",
    } == {"stage"}:
        if jobs.form.cleaned_data["probes"] == ProbeJobs.HIDE:
            query["probes"] = ProbeJobs.HIDE.value
        return {
            "totals": totals.totals_of_jobs(jobs.qs, query),
            "most_counted": totals.MOST_COUNTED,
        }
    if "request" in used:
        hours: QuerySet[Any] = HourlyTotals.objects.visible_to(request.user)
    else:
        since, until = last_hours(timezone.now(), 24)
        hours = HourlyEnds.objects.visible_to(request.user).filter(hour__gte=since, hour__lt=until)
        query["ended_from"] = since.isoformat()
    of_hours = request.GET.copy()
    of_hours.pop("probes", None)
    counted = totals.totals_of_hours(JobFilter(of_hours, queryset=hours, request=request).qs, query)
    return {
        "totals": counted,
        "totals_since": query.get("ended_from"),
        "totals_as_of": totals_as_of(),
        "behind": collections_behind(timezone.now()),
    }


@require_safe
def phases(request: AuthenticatedRequest) -> HttpResponse:
    """Show how much time the jobs of stages spend in each phase, and stuck phases."""
    now = timezone.now()
    days = (
        read_query_or_warn(
            request,
            "days",
            {str(days): days for days, _ in _PERIODS}.get,
            expected="1, 7, 30 or 90",
        )
        or 7
    )
    filters = {name: request.GET.get(name, "")[:64] for name in ("request", "stage")}
    since, _ = last_hours(now, days * 24)
    rows = phase_sums(
        request.user,
        since=since,
        request_key=filters["request"],
        stage=filters["stage"],
    )
    sort = read_sort(request, PHASE_ORDERS, default="-wall")
    context = {
        "sort": sort,
        "request_key": filters["request"],
        "stage": filters["stage"],
        "days": days,
        "choices": _PERIODS,
        "rows": sort_rows(rows, PHASE_ORDERS, sort),
        "most_rows": MOST_ROWS,
        "longest": max((phase.wall_seconds for phase in rows), default=1),
        "stuck": stuck_phases(request.user, at=now)[:_MOST_STUCK],
        "now": now,
        "tabs": live_tabs(request, "phases"),
        "sees_errors": is_opg(request.user),
        "place": "phases",
    }
    return render(request, "jobs/phases.html", context)


@require_safe
def flagged(request: AuthenticatedRequest) -> HttpResponse:
    """List flagged records with their reasons.

    Only for the OPG, because records may belong to any experiment.
    """
    if not is_opg(request.user):
        raise PermissionDenied
    filters = {name: request.GET.get(name, "")[:500] for name in ("cluster", "reason")}
    context = {
        **filters,
        "reasons": flagged_reasons(),
        "page": newest_first(
            flagged_records(**filters), by="received_at", query=request.GET, size=20
        ),
        "kept_days": KEPT.days,
        "tabs": live_tabs(request, "flagged"),
        "sees_errors": True,
        "place": "flagged",
    }
    return render(request, "jobs/flagged.html", context)


@require_safe
def claims(request: AuthenticatedRequest, key: str) -> HttpResponse:
    """List the jobs that claim to belong to a request, with forms to accept and withdraw claims."""
    return _claims_page(request, request_or_404(request.user, key))


@require_POST
def accept_claims(request: AuthenticatedRequest, key: str) -> HttpResponse:
    return _decide(
        request, key, AcceptClaimsForm(request.POST), domain.accept_claims, "Claims accepted."
    )


@require_POST
def withdraw_claims(request: AuthenticatedRequest, key: str) -> HttpResponse:
    return _decide(
        request,
        key,
        WithdrawClaimsForm(request.POST),
        domain.withdraw_claims,
        "Acceptance withdrawn.",
    )


def _decide(
    request: AuthenticatedRequest, key: str, form: Form, function: Callable[..., Any], message: str
) -> HttpResponse:
    production_request = request_or_404(request.user, key)
    domain.check_may_decide(request.user, production_request)
    if form.is_valid():
        with show_errors(request, form):
            function(
                request=production_request, by=request.user, at=timezone.now(), **form.cleaned_data
            )
            messages.success(request, message)
    if form.errors:
        return _claims_page(request, production_request, form)
    return redirect("jobs:claims", key=key)


def _claims_page(
    request: AuthenticatedRequest, production_request: Request, form: Form | None = None
) -> HttpResponse:
    context = {
        "object": production_request,
        "claims": domain.claims_of(production_request),
        "acceptances": domain.acceptances_of_claims(production_request),
        "may_decide": may(request.user, Actor.OPERATOR, production_request),
        "accept_form": form if isinstance(form, AcceptClaimsForm) else AcceptClaimsForm(),
        "withdraw_form": form
        if isinstance(form, WithdrawClaimsForm)
        else WithdrawClaimsForm(auto_id="withdraw_%s"),
    }
    return render(request, "jobs/claims.html", context, status=400 if form else 200)
