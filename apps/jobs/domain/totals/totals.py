"""Totals of jobs: of lists, of stages of requests, and wasted hours; mostly from hourly totals."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from urllib.parse import urlencode

from django.db.models import Count, F, Max, Q, QuerySet, Sum

from apps.accounts.models import User
from apps.clusters.schedulers.base import JobState
from apps.jobs.domain.records.conversion import last_hours
from apps.jobs.enums import ANY_FAILURE, FAILED_STATES, INTERRUPTED, NONE
from apps.jobs.models import HourlyEnds, HourlyTotals, Job
from apps.production.models import Request

DAYS = 7
#: Jobs of a list are counted up to this limit.
MOST_COUNTED = 10_000


@dataclass
class Sums:
    """Totals of finished jobs; `query` has the parameters of their job list."""

    name: str = ""
    query: Mapping[str, str | list[str]] = field(default_factory=dict)
    jobs: int = 0
    completed: int = 0
    failed: int = 0
    core_seconds: int = 0
    wasted_core_seconds: int = 0
    retried: int = 0
    last_ended_at: datetime | None = None

    @property
    def address(self) -> str:
        """The query string of their job list."""
        return "?" + urlencode(self.query, doseq=True)

    @property
    def completed_address(self) -> str:
        return self._address_of(JobState.COMPLETED.value)

    @property
    def failed_address(self) -> str:
        return self._address_of(ANY_FAILURE)

    @property
    def interrupted_address(self) -> str:
        return self._address_of(INTERRUPTED)

    def _address_of(self, state: str) -> str:
        return "?" + urlencode({"state": state, **self.query}, doseq=True)

    @property
    def interrupted(self) -> int:
        return self.jobs - self.completed - self.failed

    def add(self, counts: dict[str, Any]) -> None:
        self.jobs += counts["jobs"]
        self.core_seconds += counts["core_seconds"]
        self.retried += counts.get("retried") or 0
        if counts["state"] == JobState.COMPLETED:
            self.completed += counts["jobs"]
        elif counts["state"] in FAILED_STATES:
            self.failed += counts["jobs"]
            self.wasted_core_seconds += counts["core_seconds"]
        self.last_ended_at = max(
            filter(None, (self.last_ended_at, counts.get("last_ended_at"))), default=None
        )


def stage_sums(requests: Iterable[Request]) -> dict[int, dict[str, Sums]]:
    """Return the sums by primary key of the request and lower-case stage name, in one query."""
    pk_of_request = {(request.key, request.experiment_id): request.pk for request in requests}
    sums: dict[int, dict[str, Sums]] = {pk: {} for pk in pk_of_request.values()}
    totals = (
        HourlyTotals.objects.filter(request_key__in={key for key, _ in pk_of_request})
        .values("request_key", "experiment_id", "stage", "state")
        .annotate(
            jobs=Sum("jobs"),
            core_seconds=Sum("core_seconds"),
            last_ended_at=Max("last_ended_at"),
            retried=Sum("retried"),
        )
        .order_by("stage")
    )
    for total in totals:
        request = pk_of_request.get((total["request_key"], total["experiment_id"]))
        if request is None:
            continue
        name = total["stage"].casefold()
        sums_of_stage = sums[request].setdefault(name, Sums(total["stage"]))
        sums_of_stage.add(dict(total))
    return sums


@dataclass
class TotalsReport:
    """Totals of jobs that finished since `since`: overall and by state."""

    since: datetime
    all: Sums
    by_state: list[Sums]

    @property
    def waste_by_state(self) -> list[Sums]:
        """The failed states, most expensive first."""
        failures = [sums for sums in self.by_state if sums.failed]
        return sorted(failures, key=lambda sums: -sums.wasted_core_seconds)


def totals_of_jobs(jobs: QuerySet[Job], query: Mapping[str, str | list[str]]) -> Sums | None:
    """Return the totals of these jobs by counting them; None if over `MOST_COUNTED`."""
    done = Q(state=JobState.COMPLETED)
    broken = Q(state__in=sorted(FAILED_STATES))
    core = F("wall_seconds") * F("cpus")
    totals = jobs.order_by()[: MOST_COUNTED + 1].aggregate(
        jobs=Count("pk"),
        completed=Count("pk", filter=done),
        failed=Count("pk", filter=broken),
        core_seconds=Sum(core, default=0),
        wasted_core_seconds=Sum(core, filter=broken, default=0),
    )
    if totals["jobs"] > MOST_COUNTED:
        return None
    return Sums(query=query, **totals)


def totals_of_hours(totals: QuerySet[Any], query: Mapping[str, str | list[str]]) -> Sums:
    """Return the totals of jobs from hourly totals."""
    sums = Sums(query=query)
    for counts in _counts_by_state(totals):
        sums.add(counts)
    return sums


def wasted_hours(user: User, *, at: datetime) -> TotalsReport:
    """Return the wasted hours of the last seven days by end state."""
    since, _ = last_hours(at, DAYS * 24)
    ends = HourlyEnds.objects.visible_to(user).filter(hour__gte=since)
    ended_from = since.isoformat()
    everything = Sums("all", {"ended_from": ended_from})
    by_state = []
    for counts in _counts_by_state(ends):
        everything.add(counts)
        state = counts["state"]
        of_state = Sums(state, {"state": state or NONE, "ended_from": ended_from})
        of_state.add(counts)
        by_state.append(of_state)
    return TotalsReport(since, everything, by_state)


def accounted_core_seconds(
    user: User, since: datetime, until: datetime, filters: Mapping[str, Sequence[str]]
) -> int | None:
    """Return the core-seconds in hourly totals; None if these do not have the filters."""
    if filters.keys() - {"experiment", "cluster"}:
        return None
    ends = HourlyEnds.objects.visible_to(user).filter(hour__gte=since, hour__lt=until)
    for name, field_name in (("experiment", "experiment__key"), ("cluster", "cluster__name")):
        if name in filters:
            ends = ends.filter(**{f"{field_name}__in": filters[name]})
    total: int = ends.aggregate(total=Sum("core_seconds", default=0))["total"]
    return total


def _counts_by_state(totals: QuerySet[Any]) -> list[dict[str, Any]]:
    """Return jobs and core-seconds of hourly totals by end state."""
    counts = totals.values("state").annotate(jobs=Sum("jobs"), core_seconds=Sum("core_seconds"))
    return [dict(counts_of_state) for counts_of_state in counts.order_by("state")]
