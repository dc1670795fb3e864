"""Recount the totals of failures by cause and group when verdicts change, and check them."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import groupby
from operator import attrgetter
from typing import Any

from django.db import connection, transaction
from django.db.models import Count, F, Max, Min, Q, QuerySet, Sum

from apps.clusters.schedulers.base import JobState
from apps.diagnosis.domain.causes.impact.recount import mark_met_by
from apps.diagnosis.enums import VerdictKind
from apps.diagnosis.models import CauseTotals, DailyCauseTotals, KnownError, Verdict
from apps.diagnosis.wording import next_step
from apps.jobs.domain.records.calendar_months import without_records
from apps.jobs.domain.records.conversion import day_of
from apps.jobs.domain.totals import rollups
from apps.jobs.enums import Counted
from apps.jobs.models import DirtyHour, Job


@dataclass(frozen=True, slots=True)
class CauseTotal:
    """Failures by one cause in a period; `succeeded` jobs completed at a later attempt or retry."""

    verdict: str
    cause: str
    service: str
    jobs: int
    wall_seconds: int
    succeeded: int
    #: What the known error advises, if the cause is one.
    advice: str = ""

    @property
    def next_step(self) -> str:
        return next_step(VerdictKind(self.verdict), self.jobs, self.succeeded, self.advice)


def failures_by_cause(
    totals: QuerySet[CauseTotals] | QuerySet[DailyCauseTotals],
) -> list[CauseTotal]:
    """Sum totals by verdict, cause and service, most jobs first."""
    rows = (
        totals.order_by()
        .values_list("verdict", "cause", "service")
        .annotate(all_jobs=Sum("jobs"), wall=Sum("wall_seconds"), later=Sum("succeeded"))
        .order_by("-all_jobs", "verdict", "cause", "service")
    )
    causes = [CauseTotal(*row) for row in rows]
    known = KnownError.objects.filter(pk__in={cause.cause for cause in causes})
    advice = dict(known.values_list("pk", "advice"))
    return [replace(cause, advice=advice.get(cause.cause, "")) for cause in causes]


def totals_between(
    hours: QuerySet[CauseTotals],
    days: QuerySet[DailyCauseTotals],
    *,
    start: datetime,
    end: datetime,
) -> list[QuerySet[Any]]:
    """Return querysets that together contain each total of [start, end) once.

    Whole UTC days are read from the daily totals, other hours from the hourly totals.
    """
    first = day_of(start - timedelta(microseconds=1)) + _DAY
    last = day_of(end)
    if first >= last:
        return [hours.filter(hour__gte=start, hour__lt=end)]
    if (first, last) == (start, end):
        return [days.filter(day__gte=first, day__lt=last)]
    rest = Q(hour__gte=start, hour__lt=first) | Q(hour__gte=last, hour__lt=end)
    return [days.filter(day__gte=first, day__lt=last), hours.filter(rest)]


def last_decided_at() -> datetime | None:
    """Return when the newest verdict was decided; None without verdicts."""
    last: datetime | None = Verdict.objects.aggregate(last=Max("decided_at"))["last"]
    return last


def mark_dirty(hours: Iterable[datetime]) -> None:
    """Mark these hours for a recount of causes and statistics, in the caller's transaction."""
    rollups.mark_dirty(hours, Counted.CAUSES, Counted.JOBS)


@dataclass(frozen=True, slots=True)
class Recount:
    """The recounted hours, and the IDs of the failure groups in them."""

    hours: tuple[datetime, ...] = ()
    group_ids: frozenset[int] = frozenset()


def recount_dirty_hours(*, limit: int = 500) -> Recount:
    """Recount the totals of marked hours, newest first."""
    dirty = rollups.dirty_hours(Counted.CAUSES, limit=limit)
    group_ids: set[int] = set()
    for day, hours in groupby(dirty, key=day_of):
        group_ids.update(recount_hours(day=day, hours=hours))
    return Recount(tuple(dirty), frozenset(group_ids))


_KEYS = (
    "job__cluster_id",
    "experiment_id",
    "verdict",
    "cause",
    "service",
    "group_id",
    "job__stage",
)
_FIGURES = ("jobs", "wall_seconds", "core_seconds", "succeeded", "first_ended_at", "last_ended_at")
_COLUMNS = [*(name.removeprefix("job__") for name in _KEYS), *_FIGURES]
_DAY = timedelta(days=1)
_DAY_LOCK = 4_716_016
_SUMMED = f"""
INSERT INTO {DailyCauseTotals._meta.db_table} (day, {", ".join(_COLUMNS)})
SELECT %s, {", ".join(_COLUMNS[: len(_KEYS)])},
  sum(jobs), sum(wall_seconds), sum(core_seconds), sum(succeeded),
  min(first_ended_at), max(last_ended_at)
FROM {CauseTotals._meta.db_table} WHERE hour >= %s AND hour < %s
GROUP BY {", ".join(_COLUMNS[: len(_KEYS)])}
"""


@transaction.atomic
def recount_hours(*, day: datetime, hours: Iterable[datetime]) -> set[int]:
    """Recount marked hours of a UTC day, remove their marks, and sum the day.

    Return the failure groups concerned. An hour whose jobs were archived and dropped keeps its
    totals.
    """
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT pg_advisory_xact_lock(%s, %s)", [_DAY_LOCK, int(day.timestamp()) // 86_400]
        )
        groups: set[int] = set()
        for hour in hours:
            groups.update(_recount_hour(hour))
        DailyCauseTotals.objects.filter(day=day).delete()
        cursor.execute(_SUMMED, [day, day, day + _DAY])
    return groups


def _recount_hour(hour: datetime) -> set[int]:
    """Recount one hour; return the failure groups with jobs in it before or after the recount."""
    rollups.take_hour(Counted.CAUSES, hour)
    if without_records(hour):
        return set()
    totals = counted_totals(hour)
    before = CauseTotals.objects.filter(hour=hour)
    group_ids = {group for group in before.values_list("group_id", flat=True) if group}
    before.delete()
    CauseTotals.objects.bulk_create(totals)
    judged = Job.objects.filter(
        verdict__ended_at__gte=hour, verdict__ended_at__lt=hour + timedelta(hours=1)
    )
    mark_met_by(judged, baseline=False)
    return group_ids | {total.group_id for total in totals if total.group_id}


def counted_totals(hour: datetime) -> list[CauseTotals]:
    """Count the verdicts of one hour, grouped by all keys of the totals."""
    counted = (
        Verdict.objects.between(hour, hour + timedelta(hours=1))
        .order_by()
        .values_list(*_KEYS)
        .annotate(
            all_jobs=Count("pk"),
            wall=Sum("job__wall_seconds"),
            cores=Sum(F("job__wall_seconds") * F("job__cpus")),
            later=Count("pk", filter=Q(later_state=JobState.COMPLETED)),
            first=Min("ended_at"),
            last=Max("ended_at"),
        )
    )
    return [CauseTotals(hour=hour, **dict(zip(_COLUMNS, row, strict=True))) for row in counted]


def wrong_hours() -> list[datetime]:
    """Return the hours whose totals differ from a recount, except those marked for a recount.

    A day that differs from the sum of its hours is represented by its first hour.
    """
    waiting = set(DirtyHour.objects.filter(counts=Counted.CAUSES).values_list("hour", flat=True))
    hours = set(CauseTotals.objects.values_list("hour", flat=True).distinct())
    hours |= set(DailyCauseTotals.objects.values_list("day", flat=True).distinct())
    for hour in Verdict.objects.datetimes("ended_at", "hour", tzinfo=UTC):
        hours.add(hour.astimezone(UTC))

    wrong = set()
    for hour in hours - waiting:
        if _figures(counted_totals(hour)) != _figures(_stored(hour)):
            wrong.add(hour)
    for day in set(map(day_of, hours)) - set(map(day_of, wrong)):
        if _is_wrong(day):
            wrong.add(day)
    return sorted(wrong)


def _stored(hour: datetime) -> QuerySet[CauseTotals]:
    return CauseTotals.objects.filter(hour=hour)


def _is_wrong(day: datetime) -> bool:
    sums = (*map(Sum, _FIGURES[:4]), Min("first_ended_at"), Max("last_ended_at"))
    hours = CauseTotals.objects.filter(hour__gte=day, hour__lt=day + _DAY).order_by()
    counted = hours.values_list(*_COLUMNS[: len(_KEYS)]).annotate(*sums)
    return set(counted) != set(DailyCauseTotals.objects.filter(day=day).values_list(*_COLUMNS))


def _figures(totals: Iterable[CauseTotals]) -> set[tuple[object, ...]]:
    return set(map(attrgetter(*_COLUMNS), totals))
