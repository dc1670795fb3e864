"""The weekly report of an experiment: its jobs, failures, recoveries, outages and requests.

It is frozen on Monday morning.
"""

from collections.abc import Iterable
from datetime import UTC, date, datetime, time, timedelta
from typing import Any

from django.conf import settings
from django.db import transaction
from django.db.models import BigIntegerField, QuerySet, Sum
from django.db.models.functions import Cast
from django.utils import timezone

from apps.accounts.models import Experiment
from apps.core.domain.events import publish
from apps.core.models import Event
from apps.diagnosis.models import DailyCauseTotals, ImpactGroup
from apps.jobs.domain.totals.totals import Sums
from apps.jobs.models import HourlyTotals
from apps.production.domain.outputs.acceptance import acceptances_of
from apps.production.domain.slack import is_late_on
from apps.production.enums import CLOSED, RequestState
from apps.production.models import Request
from apps.progress.models import WeeklyReport
from apps.recovery.domain.recoveries import Recoveries, causes_of
from apps.statusboard.models import Incident
from apps.submission.domain.arrays.stage_events import events_not_produced

WEEK = timedelta(days=7)
#: The time from the end of the week until the report is frozen, as records of Sunday's jobs may be
#: late.
WAIT = timedelta(hours=6)
#: Maximum number of rows in each table.
MOST = 20


def week_before(at: datetime) -> date:
    """Return the Monday of the last complete week in UTC, which ended at least `WAIT` before."""
    day = (at - WAIT).astimezone(UTC).date()
    return day - timedelta(days=day.weekday()) - WEEK


def next_report(at: datetime) -> tuple[date, datetime]:
    """Return the Monday of the week that is reported next, and when its reports are frozen."""
    monday = week_before(at) + WEEK
    return monday, datetime.combine(monday + WEEK, time(), UTC) + WAIT


def freeze_weekly_reports(*, at: datetime) -> int:
    """Freeze the missing reports of the last week, and return their number.

    An experiment without jobs and requests gets no report.
    """
    monday = week_before(at)
    made = 0
    for experiment in Experiment.objects.exclude(weekly_reports__monday=monday).order_by("key"):
        made += _freeze(experiment, monday, at)
    return made


@transaction.atomic
def _freeze(experiment: Experiment, monday: date, at: datetime) -> bool:
    Experiment.objects.select_for_update(no_key=True).get(pk=experiment.pk)
    content = weekly_report_of(experiment, monday=monday, at=at)
    is_empty = not (
        content["jobs"]["jobs"] or content["before"]["jobs"] or any(content["requests"].values())
    )
    if is_empty or WeeklyReport.objects.filter(experiment=experiment, monday=monday).exists():
        return False
    report = WeeklyReport.objects.create(
        experiment=experiment, monday=monday, content=content, frozen_at=at
    )
    # Nobody is notified of a week in which no job finished.
    kind = "report.weekly" if content["jobs"]["jobs"] else "report.weekly_empty"
    publish(kind=kind, target=report, by="opsportal", at=at, reason=summary_sentence(content))
    return True


def weekly_report_of(experiment: Experiment, *, monday: date, at: datetime) -> dict[str, Any]:
    """Return the report of the week that starts on a Monday, as plain JSON values.

    The number of queries is fixed. Times are UTC. `before` has the figures of the previous week.
    Wasted core-hours are the core-hours of failed jobs.
    """
    since = datetime.combine(monday, time(), UTC)
    until = since + WEEK
    totals = HourlyTotals.objects.filter(experiment=experiment)
    now = sums_by_stage(totals, since)
    before = sums_by_stage(totals, since - WEEK)
    return {
        "experiment": experiment.key,
        "week": f"{monday:%G-W%V}",
        "since": since.isoformat(),
        "until": until.isoformat(),
        "as_of": at.isoformat(),
        "jobs": sum_figures(now.values()),
        "before": sum_figures(before.values()),
        "stages": stage_rows(now, before),
        "failures": _failures(experiment, since),
        "recovery": _recovery(experiment, monday),
        "outages": _outages(experiment, since, until),
        "requests": request_rows(Request.objects.filter(experiment=experiment), since, until, at),
    }


def summary_sentence(content: dict[str, Any]) -> str:
    """Return a report as one sentence."""
    jobs = content["jobs"]
    before = content["before"]
    if not jobs["jobs"]:
        return "No jobs finished."
    was = ""
    if before["jobs"]:
        was = f" ({100 * before['failure_rate']:.1f} % the week before)"
    wasted = (
        f"{jobs['wasted_core_hours']:,.0f} of {jobs['core_hours']:,.0f} core-hours were wasted."
    )
    return (
        f"{jobs['jobs']:,} jobs finished, {100 * jobs['failure_rate']:.1f} % of them failed{was}; "
        f"{wasted}"
    )


def sums_by_stage(totals: QuerySet[HourlyTotals], since: datetime) -> dict[str, Sums]:
    """Return the sums of some totals over the week from this time, by stage, in one query."""
    rows = (
        totals.filter(hour__gte=since, hour__lt=since + WEEK)
        .order_by()
        .values("stage", "state")
        .annotate(jobs=Sum("jobs"), core_seconds=Sum("core_seconds"))
    )
    sums: dict[str, Sums] = {}
    for counts in rows:
        sums.setdefault(counts["stage"], Sums(counts["stage"])).add(dict(counts))
    return sums


def sum_figures(stages: Iterable[Sums]) -> dict[str, Any]:
    """Return jobs, failures and core-hours of some stages together."""
    jobs = 0
    completed = 0
    failed = 0
    core_seconds = 0
    wasted_core_seconds = 0
    for sums in stages:
        jobs += sums.jobs
        completed += sums.completed
        failed += sums.failed
        core_seconds += sums.core_seconds
        wasted_core_seconds += sums.wasted_core_seconds
    return {
        "jobs": jobs,
        "completed": completed,
        "failed": failed,
        "failure_rate": round(failed / jobs, 4) if jobs else None,
        "core_hours": round(core_seconds / 3600, 2),
        "wasted_core_hours": round(wasted_core_seconds / 3600, 2),
    }


def stage_rows(now: dict[str, Sums], before: dict[str, Sums]) -> list[dict[str, Any]]:
    """Return the stages with the most wasted core-hours first.

    Stages that had jobs only in the previous week are left out.
    """
    rows = sorted(
        now.values(), key=lambda stage: (-stage.wasted_core_seconds, -stage.jobs, stage.name)
    )[:MOST]
    none = Sums()
    stages = []
    for stage in rows:
        stages.append(
            {
                "stage": stage.name,
                **sum_figures([stage]),
                "failure_rate_before": sum_figures([before.get(stage.name, none)])["failure_rate"],
            }
        )
    return stages


def _failures(experiment: Experiment, since: datetime) -> list[dict[str, Any]]:
    """Return the failure groups with the most jobs of the week, and their jobs a week before."""
    of_experiment = DailyCauseTotals.objects.filter(
        experiment=experiment, group__isnull=False
    ).order_by()
    rows = (
        of_experiment.filter(day__gte=since, day__lt=since + WEEK)
        .values("group", "group__title", "verdict", "group__first_seen_at")
        .annotate(jobs=Sum("jobs"), core=Sum("core_seconds"))
        .order_by("-jobs", "group")[:MOST]
    )
    earlier = of_experiment.filter(
        day__gte=since - WEEK, day__lt=since, group__in=[group["group"] for group in rows]
    )
    before = dict(earlier.values_list("group").annotate(Sum("jobs")))
    failures = []
    for group in rows:
        failures.append(
            {
                "group": group["group"],
                "title": group["group__title"],
                "verdict": group["verdict"],
                "is_new": group["group__first_seen_at"] >= since,
                "jobs": group["jobs"],
                "jobs_before": before.get(group["group"], 0),
                "core_hours": round(group["core"] / 3600, 2),
            }
        )
    return failures


def _recovery(experiment: Experiment, monday: date) -> dict[str, Any]:
    """Return how many production jobs that failed in the week completed without a person."""
    causes = []
    for cause in causes_of(experiment, monday=monday):
        causes.append({"category": cause.key, "title": cause.label, **_recovered(cause)})
    whole = {}
    for name in ("jobs", "by_rule", "by_person", "not_recovered", "waiting", "saved_minutes"):
        whole[name] = sum(cause[name] for cause in causes)
    return {
        **whole,
        "minutes_per_job": settings.RECOVERY_MINUTES_PER_JOB,
        "causes": causes,
    }


def _recovered(recoveries: Recoveries) -> dict[str, Any]:
    return {
        "jobs": recoveries.jobs,
        "by_rule": recoveries.by_rule,
        "by_person": recoveries.by_person,
        "not_recovered": recoveries.not_recovered,
        "waiting": recoveries.waiting,
        "saved_minutes": round(recoveries.saved_seconds / 60, 1),
    }


def _outages(experiment: Experiment, since: datetime, until: datetime) -> list[dict[str, Any]]:
    """Return the incidents of the week that made most jobs fail.

    An incident counts with all its jobs.
    """
    of_week = ImpactGroup.objects.filter(
        experiment=experiment,
        impact__incident__started_at__lt=until,
        impact__incident__merged_into=None,
    ).exclude(impact__incident__ended_at__lte=since)
    rows = (
        of_week.order_by()
        .values("impact__incident")
        .annotate(jobs=Sum("confirmed"), core=Sum("confirmed_core_seconds"))
        .filter(jobs__gt=0)
        .order_by("-jobs", "impact__incident")[:MOST]
    )
    costs = {cost["impact__incident"]: cost for cost in rows}
    incidents = Incident.objects.select_related("service").in_bulk(costs)
    outages = []
    for pk, cost in costs.items():
        outages.append(
            {
                "incident": pk,
                "service": incidents[pk].service.name,
                "title": incidents[pk].title,
                "jobs": cost["jobs"],
                "core_hours": round(cost["core"] / 3600, 2),
            }
        )
    return outages


def request_rows(
    requests: QuerySet[Request], since: datetime, until: datetime, at: datetime
) -> dict[str, list[dict[str, Any]]]:
    """Return which of some requests were submitted or closed in the week, or are open and late.

    One that was submitted again later still counts: each submission is an event.
    """
    idle = sorted({*CLOSED, RequestState.DRAFT})
    mine = requests.order_by("pk")
    return {
        "submitted": _as_rows(mine.filter(pk__in=_submitted_in(since, until))),
        "closed": _closed(mine.filter(closed_at__gte=since, closed_at__lt=until)),
        "late": _as_rows(mine.exclude(state__in=idle).filter(is_late_on(timezone.localdate(at)))),
    }


def _submitted_in(since: datetime, until: datetime) -> QuerySet[Any]:
    """Return the primary keys of the requests that were submitted in a period."""
    events = Event.objects.filter(kind="request.submit", at__gte=since, at__lt=until)
    return events.values_list(Cast("target_id", BigIntegerField()), flat=True)


def _closed(requests: QuerySet[Request]) -> list[dict[str, Any]]:
    """Return closed requests, each with the stages that lack events."""
    closed = list(requests[:MOST])
    stages_by_request = events_not_produced(closed, acceptances_of(closed))
    rows = []
    for request in closed:
        stages = []
        for events in stages_by_request.get(request.pk, ()):
            stages.append(
                {
                    "stage": events.stage.name,
                    "requested": events.requested,
                    "not_produced": events.not_produced,
                }
            )
        rows.append(
            {
                "request": request.key,
                "title": request.title,
                "state": request.state,
                "events_not_produced": stages,
            }
        )
    return rows


def _as_rows(requests: QuerySet[Request]) -> list[dict[str, Any]]:
    return [
        {"request": request.key, "title": request.title, "state": request.state}
        for request in requests[:MOST]
    ]
