"""Reading what a diagnosis needs, and verdicts and failures by cause for pages. Logs are shown by `log_windows`."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db import connection, transaction
from django.db.models import Count, Max, QuerySet, Sum

from apps.diagnosis.models import CauseTotals, DirtyCauseHour, Verdict


@dataclass(frozen=True, slots=True)
class CauseRow:
    """One cause of failures in a window of time."""

    verdict: str
    cause: str
    service: str
    jobs: int
    wall_seconds: int


def failures_by_cause(totals: QuerySet[CauseTotals]) -> list[CauseRow]:
    """Sum totals by verdict, cause and service, the one with most jobs first."""
    rows = (
        totals.order_by()
        .values_list("verdict", "cause", "service")
        .annotate(all_jobs=Sum("jobs"), wall=Sum("wall_seconds"))
        .order_by("-all_jobs", "verdict", "cause", "service")
    )
    return [CauseRow(*row) for row in rows]


def last_decided_at() -> datetime | None:
    """Return when the newest verdict was decided."""
    last: datetime | None = Verdict.objects.aggregate(last=Max("decided_at"))["last"]
    return last


_TOTALS_LOCK = 4_716_011


def mark_dirty(hours: Iterable[datetime]) -> None:
    """Note, in the caller's transaction, that the totals by cause of these hours must be counted anew."""
    DirtyCauseHour.objects.bulk_create([DirtyCauseHour(hour=hour) for hour in sorted(set(hours))])


def recount_dirty_hours(*, limit: int = 500) -> int:
    """Count the totals of changed hours anew, newest first; return how many hours."""
    hours = list(DirtyCauseHour.objects.order_by("-hour").values_list("hour", flat=True).distinct()[:limit])
    for hour in hours:
        recount_hour(hour=hour)
    return len(hours)


@transaction.atomic
def recount_hour(*, hour: datetime) -> None:
    """Count one hour's totals anew, and remove the notes that were there before the count.

    A note commits with its verdict, and the count is a later statement than the removal: none is lost.
    """
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(%s, %s)", [_TOTALS_LOCK, int(hour.timestamp()) // 3600])
    DirtyCauseHour.objects.filter(hour=hour).delete()
    groups = ("job__cluster_id", "experiment_id", "verdict", "cause", "service")
    counted = (
        Verdict.objects.between(hour, hour + timedelta(hours=1))
        .order_by()
        .values_list(*groups)
        .annotate(jobs=Count("pk"), wall=Sum("job__wall_seconds"))
    )
    names = ("cluster_id", "experiment_id", "verdict", "cause", "service", "jobs", "wall_seconds")
    totals = [CauseTotals(hour=hour, **dict(zip(names, row, strict=True))) for row in counted]
    CauseTotals.objects.filter(hour=hour).delete()
    CauseTotals.objects.bulk_create(totals)
