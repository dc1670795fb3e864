"""Hourly totals and statistics of jobs, kept equal to a recount by marking hours as dirty."""

from collections.abc import Iterable
from datetime import datetime, timedelta

from django.db import connection, transaction
from django.db.models import Count, F, Max, Q, Sum

from apps.core.domain.bulk import copy_objects
from apps.core.domain.health import beat_heart
from apps.jobs.domain.records.calendar_months import without_records
from apps.jobs.domain.records.jobs import TOTALS_HEART
from apps.jobs.enums import Counted
from apps.jobs.models import DirtyHour, HourlyEnds, HourlyTotals, Job

_LOCKS = {
    Counted.JOBS: 4_716_002,
    Counted.CAUSES: 4_716_011,
    Counted.PHASES: 4_716_014,
    Counted.LINES: 4_716_051,
}


def mark_dirty(hours: Iterable[datetime], *counts: Counted) -> None:
    """Mark hours for a recount, in the caller's transaction.

    Without `counts`, of all that is counted from the jobs themselves.
    """
    in_order = sorted(set(hours))
    rows: list[DirtyHour] = []
    for counted in counts or (Counted.JOBS, Counted.LINES):
        rows.extend(DirtyHour(hour=hour, counts=counted) for hour in in_order)
    DirtyHour.objects.bulk_create(rows)


def dirty_hours(counts: Counted, *, limit: int) -> list[datetime]:
    """Return hours to recount, newest first."""
    hours = DirtyHour.objects.filter(counts=counts).order_by("-hour").values_list("hour", flat=True)
    return list(hours.distinct()[:limit])


def take_hour(counts: Counted, hour: datetime) -> bool:
    """Remove the marks of an hour before its recount; return False if it has none.

    Must run in the transaction of the recount; a lock prevents two recounts of the same hour. A
    mark commits together with its change, and the recount reads after the marks are removed. It
    therefore sees the changes of all removed marks, and changes that commit later leave new marks.
    """
    lock = _LOCKS[counts]
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT pg_advisory_xact_lock(%s, %s)", [lock, int(hour.timestamp()) // 3600]
        )
    removed, _ = DirtyHour.objects.filter(counts=counts, hour=hour).delete()
    return bool(removed)


def recompute_dirty_hours(*, at: datetime, limit: int = 500) -> int:
    """Recount dirty hours, newest first; return their number.

    If none remain, the totals are as of `at`.
    """
    from apps.jobs.domain.statistics.blocks import compact_days

    hours = dirty_hours(Counted.JOBS, limit=limit + 1)
    for hour in hours[:limit]:
        recompute_hour(hour=hour)
    compact_days(at=at)
    if len(hours) <= limit:
        beat_heart(name=TOTALS_HEART, at=at)
    return min(len(hours), limit)


@transaction.atomic
def recompute_hour(*, hour: datetime) -> None:
    """Recount one hour if it is dirty. An hour whose job records were dropped keeps its totals."""
    if not take_hour(Counted.JOBS, hour) or without_records(hour):
        return
    from apps.jobs.domain.statistics.blocks import write_hour

    write_hour(hour=hour)
    groups = ("cluster_id", "experiment_id", "request_key", "stage", "state")
    counted = (
        Job.objects.filter(ended_at__gte=hour, ended_at__lt=hour + timedelta(hours=1))
        .order_by()
        .values(*groups)
        .annotate(
            jobs=Count("pk"),
            wall=Sum("wall_seconds"),
            core=Sum(F("wall_seconds") * F("cpus")),
            cpu=Sum("cpu_seconds"),
            last=Max("ended_at"),
            retried=Count("pk", filter=Q(attempt__gt=1)),
        )
    )
    totals = []
    for sums in counted:
        total = HourlyTotals(
            hour=hour,
            **{name: sums[name] for name in groups},
            jobs=sums["jobs"],
            wall_seconds=sums["wall"],
            core_seconds=sums["core"],
            cpu_seconds=sums["cpu"],
            last_ended_at=sums["last"],
            retried=sums["retried"],
        )
        totals.append(total)
    HourlyTotals.objects.filter(hour=hour).delete()
    copy_objects(totals)
    HourlyEnds.objects.filter(hour=hour).delete()
    copy_objects(ends_of(totals))


def ends_of(totals: Iterable[HourlyTotals]) -> list[HourlyEnds]:
    """Return the unsaved sums of totals over requests and stages."""
    sums: dict[tuple[object, ...], HourlyEnds] = {}
    for hourly in totals:
        key = {}
        for name in ("hour", "cluster_id", "experiment_id", "state"):
            key[name] = getattr(hourly, name)
        ends = sums.setdefault(tuple(key.values()), HourlyEnds(**key, jobs=0, core_seconds=0))
        ends.jobs += hourly.jobs
        ends.core_seconds += hourly.core_seconds
    return list(sums.values())
