"""Weekly reports of several experiments together, and of one campaign.

The first sums up frozen reports, so that it never changes either. That of a campaign has its
requests as of now, and the jobs of the week as counted now.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from typing import Any

from apps.accounts.models import User
from apps.accounts.permissions import scope_of
from apps.core.domain.dates import OUT_OF_RANGE, in_range
from apps.jobs.models import HourlyTotals
from apps.production.models import Request
from apps.progress.domain.weekly_report import (
    MOST,
    WEEK,
    request_rows,
    stage_rows,
    sum_figures,
    sums_by_stage,
)
from apps.progress.models import WeeklyReport

#: What is wrong with a text that is not a week.
NO_WEEK = "Enter a week in ISO 8601 format, such as 2026-W47."
_WEEK = re.compile(r"[0-9]{4}-W[0-9]{2}")
_SUMMED = ("jobs", "completed", "failed", "core_hours", "wasted_core_hours")
_RECOVERED = ("jobs", "by_rule", "by_person", "not_recovered", "waiting", "saved_minutes")


@dataclass(frozen=True)
class SummedWeek:
    """A week of several experiments, or of a campaign. Its figures are of `frozen_at`."""

    title: str
    monday: date
    frozen_at: datetime
    content: dict[str, Any]

    def __str__(self) -> str:
        return f"{self.title}, week {self.monday:%-V of %G}"

    @property
    def week(self) -> str:
        """The week in ISO 8601 format: `2026-W47`."""
        return f"{self.monday:%G-W%V}"


def first_day(week: str) -> date:
    """Return the Monday of an ISO 8601 week such as `2026-W47`.

    Raises `ValueError` with a message for the user.
    """
    if not _WEEK.fullmatch(week):
        raise ValueError(NO_WEEK)
    try:
        monday = date.fromisocalendar(int(week[:4]), int(week[6:]), 1)
    except ValueError:
        raise ValueError(NO_WEEK) from None
    if not in_range(monday):
        raise ValueError(OUT_OF_RANGE)
    return monday


def week_of_experiments(user: User, *, monday: date) -> SummedWeek | None:
    """Return the reports of a week together, of the experiments that the user may see.

    Returns None if there is no such report.
    """
    visible = WeeklyReport.objects.visible_to(user).filter(monday=monday)
    reports = list(visible.select_related("experiment").order_by("experiment__key"))
    if not reports:
        return None
    title = "All experiments" if scope_of(user).sees_all else "Your experiments"
    return _sum_reports(reports, title=title)


def week_of_campaign(
    user: User, *, experiment: str, name: str, monday: date, at: datetime
) -> SummedWeek | None:
    """Return a week of a campaign of an experiment, named by its key, as of now.

    Takes a fixed number of queries. Returns None if the user may see no request of the campaign, or
    if the week has not begun.
    """
    since = datetime.combine(monday, time(), UTC)
    requests = Request.objects.visible_to(user).filter(experiment__key=experiment, campaign=name)
    first = requests.select_related("experiment").first()
    if not name or first is None or since > at:
        return None
    keys = list(requests.order_by().values_list("key", flat=True))
    totals = HourlyTotals.objects.filter(experiment=first.experiment, request_key__in=keys)
    now = sums_by_stage(totals, since)
    before = sums_by_stage(totals, since - WEEK)
    content = {
        "experiment": experiment,
        "since": since.isoformat(),
        "until": (since + WEEK).isoformat(),
        "jobs": sum_figures(now.values()),
        "before": sum_figures(before.values()),
        "stages": stage_rows(now, before),
        "requests": request_rows(requests, since, since + WEEK, at),
    }
    return SummedWeek(f"Campaign {name} of {first.experiment.name}", monday, at, content)


def _sum_reports(reports: Sequence[WeeklyReport], *, title: str) -> SummedWeek:
    contents = [report.content for report in reports]
    experiments = []
    stages = []
    for report in reports:
        content = report.content
        experiments.append(
            {
                "experiment": report.experiment.key,
                "name": report.experiment.name,
                **content["jobs"],
                "failure_rate_before": content["before"]["failure_rate"],
            }
        )
        for stage in content["stages"]:
            stages.append({**stage, "experiment": report.experiment.key})
    stages.sort(key=lambda row: -row["wasted_core_hours"])
    experiments.sort(key=lambda row: -row["wasted_core_hours"])

    summed = {
        "since": contents[0]["since"],
        "until": contents[0]["until"],
        "jobs": _sum_figures(content["jobs"] for content in contents),
        "before": _sum_figures(content["before"] for content in contents),
        "experiments": experiments,
        "stages": stages[:MOST],
        "failures": _merge(contents, "failures", "group", ("jobs", "jobs_before", "core_hours")),
        "outages": _merge(contents, "outages", "incident", ("jobs", "core_hours")),
        "requests": {},
    }
    for name in ("submitted", "closed", "late"):
        rows = []
        for content in contents:
            rows += content["requests"][name]
        summed["requests"][name] = rows
    # Reports frozen by earlier versions have no recoveries.
    recoveries = [content["recovery"] for content in contents if "recovery" in content]
    if recoveries:
        summed["recovery"] = _sum_recoveries(recoveries)
    frozen_at = max(report.frozen_at for report in reports)
    return SummedWeek(title, reports[0].monday, frozen_at, summed)


def _sum_figures(rows: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    sums: dict[str, Any] = dict.fromkeys(_SUMMED, 0)
    for row in rows:
        for name in _SUMMED:
            sums[name] += row[name]
    rate = round(sums["failed"] / sums["jobs"], 4) if sums["jobs"] else None
    return {**sums, "failure_rate": rate}


def _merge(
    contents: Iterable[Mapping[str, Any]], table: str, key: str, summed: Sequence[str]
) -> list[dict[str, Any]]:
    """Return the rows of a table of all reports, those with an equal key as one, most jobs first.

    Each report has its first rows only, so that a sum may lack the jobs of a further experiment.
    """
    merged: dict[Any, dict[str, Any]] = {}
    for content in contents:
        for row in content[table]:
            if row[key] not in merged:
                merged[row[key]] = dict(row)
                continue
            for name in summed:
                merged[row[key]][name] += row[name]
    return sorted(merged.values(), key=lambda row: -row["jobs"])[:MOST]


def _sum_recoveries(recoveries: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    causes: dict[str, dict[str, Any]] = {}
    for recovery in recoveries:
        for cause in recovery["causes"]:
            sums = causes.setdefault(cause["category"], {**cause, **dict.fromkeys(_RECOVERED, 0)})
            for name in _RECOVERED:
                sums[name] += cause[name]
    whole: dict[str, Any] = {}
    for name in _RECOVERED:
        whole[name] = sum(recovery[name] for recovery in recoveries)
    minutes = recoveries[0]["minutes_per_job"]
    return {**whole, "minutes_per_job": minutes, "causes": list(causes.values())}
