"""Totals of failures by cause and group: recount them when verdicts change, and check them."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from django.db import transaction
from django.db.models import Count, F, Max, Min, Q, QuerySet, Sum

from apps.clusters.schedulers.base import JobState
from apps.diagnosis.domain.impact.recount import mark_met_by
from apps.diagnosis.enums import VerdictKind
from apps.diagnosis.models import CauseTotals, Verdict
from apps.diagnosis.wording import next_step
from apps.jobs.domain import rollups
from apps.jobs.domain.calendar_months import without_records
from apps.jobs.enums import Counted
from apps.jobs.models import DirtyHour, Job


@dataclass(frozen=True, slots=True)
class CauseRow:
    """Failures by one cause in a period; of `jobs`, `succeeded` completed at a later attempt or retry."""

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


def mark_dirty(hours: Iterable[datetime]) -> None:
    """Mark these hours, in the caller's transaction, for a recount of their totals by cause and of the statistics."""
    rollups.mark_dirty(hours, Counted.CAUSES, Counted.JOBS)


def recount_dirty_hours(*, limit: int = 500) -> set[int]:
    """Recount the totals of marked hours, newest first; return the ids of the failure groups in these hours."""
    hours = rollups.dirty_hours(Counted.CAUSES, limit=limit)
    return {group for hour in hours for group in recount_hour(hour=hour)}


_KEYS = ("job__cluster_id", "experiment_id", "verdict", "cause", "service", "group_id", "job__stage")
_FIGURES = ("jobs", "wall_seconds", "core_seconds", "succeeded", "first_ended_at", "last_ended_at")


@transaction.atomic
def recount_hour(*, hour: datetime) -> set[int]:
    """Recount one hour's totals, and remove the notes that were there before the count; return its failure groups.

    An hour whose jobs are archived and dropped keeps its totals.
    """
    rollups.take_hour(Counted.CAUSES, hour)
    if without_records(hour):
        return set()
    totals = counted_totals(hour)
    CauseTotals.objects.filter(hour=hour).delete()
    CauseTotals.objects.bulk_create(totals)
    judged = Job.objects.filter(verdict__ended_at__gte=hour, verdict__ended_at__lt=hour + timedelta(hours=1))
    mark_met_by(judged, baseline=False)
    return {row.group_id for row in totals if row.group_id}


def counted_totals(hour: datetime) -> list[CauseTotals]:
    """Count the verdicts of one hour, by everything that the totals distinguish."""
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
    names = [name.removeprefix("job__") for name in _KEYS] + list(_FIGURES)
    return [CauseTotals(hour=hour, **dict(zip(names, row, strict=True))) for row in counted]


def wrong_hours() -> list[datetime]:
    """Return the hours whose totals differ from a recount, without those that wait for one."""
    waiting = set(DirtyHour.objects.filter(counts=Counted.CAUSES).values_list("hour", flat=True))
    hours = set(CauseTotals.objects.values_list("hour", flat=True).distinct())
    hours |= {hour.astimezone(UTC) for hour in Verdict.objects.datetimes("ended_at", "hour", tzinfo=UTC)}
    return [hour for hour in sorted(hours - waiting) if _figures(counted_totals(hour)) != _figures(_stored(hour))]


def _stored(hour: datetime) -> QuerySet[CauseTotals]:
    return CauseTotals.objects.filter(hour=hour)


def _figures(totals: Iterable[CauseTotals]) -> set[tuple[object, ...]]:
    names = [name.removeprefix("job__") for name in _KEYS] + list(_FIGURES)
    return {tuple(getattr(row, name) for name in names) for row in totals}
