"""Totals of failures by cause: recount them when verdicts change, and read them for pages."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db import connection, transaction
from django.db.models import Count, Max, Q, QuerySet, Sum

from apps.clusters.schedulers.base import JobState
from apps.diagnosis.enums import VerdictKind
from apps.diagnosis.models import CauseTotals, DirtyCauseHour, Verdict
from apps.diagnosis.wording import next_step
from apps.jobs.domain import rollups


@dataclass(frozen=True, slots=True)
class CauseRow:
    """Failures by one cause in a period; of `jobs`, `succeeded` completed at a later attempt."""

    verdict: str
    cause: str
    service: str
    jobs: int
    wall_seconds: int
    succeeded: int

    @property
    def next_step(self) -> str:
        return next_step(VerdictKind(self.verdict), self.jobs, self.succeeded)


def failures_by_cause(totals: QuerySet[CauseTotals]) -> list[CauseRow]:
    """Sum totals by verdict, cause and service, most jobs first."""
    rows = (
        totals.order_by()
        .values_list("verdict", "cause", "service")
        .annotate(all_jobs=Sum("jobs"), wall=Sum("wall_seconds"), later=Sum("succeeded"))
        .order_by("-all_jobs", "verdict", "cause", "service")
    )
    return [CauseRow(*row) for row in rows]


def last_decided_at() -> datetime | None:
    """Return when the newest verdict was decided; None without verdicts."""
    last: datetime | None = Verdict.objects.aggregate(last=Max("decided_at"))["last"]
    return last


_TOTALS_LOCK = 4_716_011


def mark_dirty(hours: Iterable[datetime]) -> None:
    """Mark these hours, in the caller's transaction, for a recount of their totals by cause and of the statistics."""
    hours = sorted(set(hours))
    DirtyCauseHour.objects.bulk_create([DirtyCauseHour(hour=hour) for hour in hours])
    rollups.mark_dirty(hours)


def recount_dirty_hours(*, limit: int = 500) -> int:
    """Recount the totals of marked hours, newest first; return how many hours."""
    hours = list(DirtyCauseHour.objects.order_by("-hour").values_list("hour", flat=True).distinct()[:limit])
    for hour in hours:
        recount_hour(hour=hour)
    return len(hours)


@transaction.atomic
def recount_hour(*, hour: datetime) -> None:
    """Recount one hour's totals, and remove the marks that were there before the count.

    A mark commits with its verdict, and marks are removed before the count: no change is missed.
    """
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(%s, %s)", [_TOTALS_LOCK, int(hour.timestamp()) // 3600])
    DirtyCauseHour.objects.filter(hour=hour).delete()
    groups = ("job__cluster_id", "experiment_id", "verdict", "cause", "service")
    counted = (
        Verdict.objects.between(hour, hour + timedelta(hours=1))
        .order_by()
        .values_list(*groups)
        .annotate(
            jobs=Count("pk"),
            wall=Sum("job__wall_seconds"),
            later=Count("pk", filter=Q(later_state=JobState.COMPLETED)),
        )
    )
    names = ("cluster_id", "experiment_id", "verdict", "cause", "service", "jobs", "wall_seconds", "succeeded")
    totals = [CauseTotals(hour=hour, **dict(zip(names, row, strict=True))) for row in counted]
    CauseTotals.objects.filter(hour=hour).delete()
    CauseTotals.objects.bulk_create(totals)
