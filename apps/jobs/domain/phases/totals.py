"""Hourly totals of phases, always equal to a recount, and sums by stage and phase.

Jobs report phases, and logs of jobs that did not complete mark them. If a job has reported phases,
those in its log are ignored.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db import transaction
from django.db.models import Count, Exists, F, Max, OuterRef, Q, Sum
from django.db.models.functions import Coalesce

from apps.accounts.models import User
from apps.clusters.schedulers.base import JobState
from apps.clusters.schedulers.plausibility import AHEAD
from apps.jobs.domain.records.calendar_months import without_records
from apps.jobs.domain.totals.rollups import dirty_hours, take_hour
from apps.jobs.enums import Counted, PhaseSource
from apps.jobs.models import JobPhase, LogPhase, PhaseTotals

_KEYS = ("experiment_id", "request_key", "stage", "name")
_WALL = F("ended_at") - F("started_at")
_NONE = timedelta(0)
MOST_ROWS = 200


def recount_phases(*, limit: int = 500) -> int:
    """Recount phases of dirty hours, newest first; return the number of hours."""
    hours = dirty_hours(Counted.PHASES, limit=limit)
    for hour in hours:
        recount_hour(hour=hour)
    return len(hours)


@transaction.atomic
def recount_hour(*, hour: datetime) -> None:
    """Recount one hour if it is dirty.

    An hour whose job records were dropped keeps its totals from logs.
    """
    if not take_hour(Counted.PHASES, hour):
        return
    _replace_totals(hour, PhaseSource.REPORTED, _count_reported(hour))
    if not without_records(hour):
        _replace_totals(hour, PhaseSource.LOG, _count_in_logs(hour))


def _replace_totals(hour: datetime, source: PhaseSource, totals: Iterable[PhaseTotals]) -> None:
    PhaseTotals.objects.filter(hour=hour, source=source).delete()
    PhaseTotals.objects.bulk_create(totals)


def _count_reported(hour: datetime) -> list[PhaseTotals]:
    """Return the unsaved totals of the reported phases that ended in an hour."""
    counted = (
        JobPhase.objects.filter(ended_at__gte=hour, ended_at__lt=hour + timedelta(hours=1))
        .order_by()
        .values(*_KEYS)
        .annotate(
            phases=Count("pk"),
            failed=Count("pk", filter=~Q(exit_code=0)),
            wall=Sum(_WALL),
            longest=Max(_WALL),
            cpu=Sum("cpu_seconds", default=0.0),
            cpu_wall=Sum(_WALL, filter=Q(cpu_seconds__isnull=False), default=_NONE),
        )
    )
    rows = []
    for sums in counted:
        totals = PhaseTotals(
            hour=hour,
            source=PhaseSource.REPORTED,
            **{name: sums[name] for name in _KEYS},
            phases=sums["phases"],
            failed=sums["failed"],
            wall_seconds=sums["wall"].total_seconds(),
            longest_seconds=sums["longest"].total_seconds(),
            cpu_seconds=sums["cpu"],
            cpu_wall_seconds=sums["cpu_wall"].total_seconds(),
        )
        rows.append(totals)
    return rows


def _count_in_logs(hour: datetime) -> list[PhaseTotals]:
    """Return the unsaved totals of phases in logs of jobs that ended in an hour.

    Jobs that reported phases are left out.
    """
    reported = JobPhase.objects.filter(
        cluster=OuterRef("job__cluster"),
        job_id=OuterRef("job__job_id"),
        experiment=OuterRef("job__experiment"),
        started_at__gte=Coalesce(OuterRef("job__started_at"), OuterRef("job__submitted_at"))
        - AHEAD,
        started_at__lt=OuterRef("job__ended_at") + AHEAD,
    )
    counted = (
        LogPhase.objects.filter(
            job__ended_at__gte=hour, job__ended_at__lt=hour + timedelta(hours=1)
        )
        .filter(~Exists(reported), job__experiment__isnull=False)
        .exclude(job__state=JobState.COMPLETED)  # only samples of their logs are read
        .order_by()
        .values(
            "name",
            experiment_id=F("job__experiment_id"),
            request_key=F("job__request_key"),
            stage=F("job__stage"),
        )
        .annotate(
            phases=Count("pk"),
            all_failed=Count("pk", filter=Q(failed=True)),
            wall=Sum("wall_seconds"),
            longest=Max("wall_seconds"),
        )
    )
    totals = []
    for sums in counted:
        totals.append(
            PhaseTotals(
                hour=hour,
                source=PhaseSource.LOG,
                experiment_id=sums["experiment_id"],
                request_key=sums["request_key"],
                stage=sums["stage"],
                name=sums["name"],
                phases=sums["phases"],
                failed=sums["all_failed"],
                wall_seconds=sums["wall"],
                longest_seconds=sums["longest"],
                cpu_seconds=0,
                cpu_wall_seconds=0,
            )
        )
    return totals


@dataclass(frozen=True, slots=True)
class PhaseSums:
    """Sums over phases of one name in one stage of a request.

    `from_logs` is the number of phases that were read from logs.
    """

    request_key: str
    stage: str
    name: str
    phases: int
    failed: int
    wall_seconds: float
    longest_seconds: float
    cpu_seconds: float
    cpu_wall_seconds: float
    from_logs: int

    @property
    def mean_seconds(self) -> float:
        return self.wall_seconds / self.phases


def phase_sums(
    user: User, *, since: datetime, request_key: str = "", stage: str = ""
) -> list[PhaseSums]:
    """Return sums of phases that a user can see, by request, stage and name, costliest first."""
    totals = PhaseTotals.objects.visible_to(user).filter(hour__gte=since)
    if request_key:
        totals = totals.filter(request_key=request_key)
    if stage:
        totals = totals.filter(stage__iexact=stage)
    rows = (
        totals.order_by()
        .values_list(*_KEYS[1:])
        .annotate(
            all_phases=Sum("phases"),
            all_failed=Sum("failed"),
            wall=Sum("wall_seconds"),
            longest=Max("longest_seconds"),
            cpu=Sum("cpu_seconds"),
            cpu_wall=Sum("cpu_wall_seconds"),
            from_logs=Sum("phases", filter=Q(source=PhaseSource.LOG), default=0),
        )
        .order_by("-wall", *_KEYS[1:])
    )
    return [PhaseSums(*row) for row in rows[:MOST_ROWS]]
