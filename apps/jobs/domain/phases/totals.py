"""Totals of phases by hour, kept equal to a recount, and sums of them by stage and phase."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db import transaction
from django.db.models import Count, F, Max, Q, Sum

from apps.accounts.models import User
from apps.jobs.domain.rollups import dirty_hours, take_hour
from apps.jobs.enums import Counted
from apps.jobs.models import JobPhase, PhaseTotals

_KEYS = ("experiment_id", "request_key", "stage", "name")
_WALL = F("ended_at") - F("started_at")
_NONE = timedelta(0)
MOST_ROWS = 200


def recount_phases(*, limit: int = 500) -> int:
    """Recount the phases of dirty hours, newest first; return how many hours."""
    hours = dirty_hours(Counted.PHASES, limit=limit)
    for hour in hours:
        recount_hour(hour=hour)
    return len(hours)


@transaction.atomic
def recount_hour(*, hour: datetime) -> None:
    """Recount the phases that ended in one hour, if it has notes."""
    if not take_hour(Counted.PHASES, hour):
        return
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
    totals = [
        PhaseTotals(
            hour=hour,
            **{name: row[name] for name in _KEYS},
            phases=row["phases"],
            failed=row["failed"],
            wall_seconds=row["wall"].total_seconds(),
            longest_seconds=row["longest"].total_seconds(),
            cpu_seconds=row["cpu"],
            cpu_wall_seconds=row["cpu_wall"].total_seconds(),
        )
        for row in counted
    ]
    PhaseTotals.objects.filter(hour=hour).delete()
    PhaseTotals.objects.bulk_create(totals)


@dataclass(frozen=True, slots=True)
class PhaseSums:
    """The phases of one name in one stage of a request."""

    request_key: str
    stage: str
    name: str
    phases: int
    failed: int
    wall_seconds: float
    longest_seconds: float
    cpu_seconds: float
    cpu_wall_seconds: float

    @property
    def mean_seconds(self) -> float:
        return self.wall_seconds / self.phases


def phase_sums(user: User, *, since: datetime, request_key: str = "", stage: str = "") -> list[PhaseSums]:
    """Return phases that a user sees and that ended since then, by request, stage and name, the costliest first."""
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
        )
        .order_by("-wall", *_KEYS[1:])
    )
    return [PhaseSums(*row) for row in rows[:MOST_ROWS]]
