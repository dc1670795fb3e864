"""Reading the hourly totals: progress of requests, hours lost, the week's report. Never counts jobs."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, time, timedelta, tzinfo
from typing import Any
from urllib.parse import urlencode

from django.db.models import Max, QuerySet, Sum
from django.db.models.functions import TruncDate

from apps.accounts.models import User
from apps.clusters.schedulers.base import JobState
from apps.jobs.domain.delivered import LeftOut, left_out
from apps.jobs.domain.records import hour_of
from apps.jobs.enums import ANY_FAILURE, FAILED_STATES, INTERRUPTED, NONE
from apps.jobs.models import HourlyEnds, HourlyTotals
from apps.production.domain.queue.order import by_place, startable
from apps.production.enums import IN_PRODUCTION
from apps.production.models import Request, Stage

#: Apps above that send jobs again: of requests, how many, by the request's primary key and the stage's position.
SENT_AGAIN: list[Callable[[Sequence[int]], Mapping[tuple[int, int], int]]] = []
#: Apps above that send jobs: each keeps, of primary keys of requests, those whose jobs it sends.
SENT_HERE: list[Callable[[Sequence[int]], Iterable[int]]] = []

DAYS = 7
#: How many rows a table of stages and how many requests the home page shows.
MOST_STAGES, MOST_REQUESTS = 12, 12


@dataclass
class Sums:
    """Totals of some jobs that ended; `name` and `query` say which, the latter as parameters of the job list."""

    name: str = ""
    query: dict[str, str] = field(default_factory=dict)
    jobs: int = 0
    completed: int = 0
    failed: int = 0
    core_seconds: int = 0
    wasted_core_seconds: int = 0
    retried: int = 0
    last_ended_at: datetime | None = None

    @property
    def address(self) -> str:
        """Return the query string of the list of these jobs."""
        return "?" + urlencode(self.query)

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
        return "?" + urlencode({"state": state, **self.query})

    @property
    def interrupted(self) -> int:
        return self.jobs - self.completed - self.failed

    def add(self, row: dict[str, Any]) -> None:
        self.jobs += row["jobs"]
        self.core_seconds += row["core_seconds"]
        self.retried += row.get("retried") or 0
        if row["state"] == JobState.COMPLETED:
            self.completed += row["jobs"]
        elif row["state"] in FAILED_STATES:
            self.failed += row["jobs"]
            self.wasted_core_seconds += row["core_seconds"]
        self.last_ended_at = max(filter(None, (self.last_ended_at, row.get("last_ended_at"))), default=None)


@dataclass
class StageProgress:
    """How far one stage of a request is; `wanted` is None where the request does not say how many jobs it takes.

    `sums` are of all its jobs, by attempts; `completed` and `ended` of those of production, each job once.
    """

    request: Request
    stage: str
    wanted: int | None
    sums: Sums
    asked: Stage | None = None
    left_out: LeftOut = field(default_factory=LeftOut)

    @property
    def completed(self) -> int:
        return max(0, self.sums.completed - self.left_out.completed)

    @property
    def ended(self) -> int:
        return max(0, self.sums.jobs - self.sums.retried - self.left_out.ended)

    @property
    def percent(self) -> float | None:
        return min(100.0, 100 * self.completed / self.wanted) if self.wanted else None


def progress_of(request: Request) -> list[StageProgress]:
    """Return the progress of each stage in order, then of stages that only its jobs name."""
    stages = request.stages.select_related("location").order_by("position")
    return _progress([request], {request.pk: list(stages)})[request.pk]


def sent_again(requests: Sequence[int]) -> dict[tuple[int, int], int]:
    """Return how many jobs were sent again as jobs of their own, which accounting takes for first attempts."""
    found: dict[tuple[int, int], int] = {}
    for ask in SENT_AGAIN if requests else ():
        for place, jobs in ask(requests).items():
            found[place] = found.get(place, 0) + jobs
    return found


def sent_here(requests: Sequence[int]) -> set[int]:
    """Keep, of primary keys of requests, those whose jobs the portal sends, so that it knows of each failed one."""
    return {pk for ask in SENT_HERE for pk in ask(requests)} if requests else set()


def production_now(user: User) -> list[StageProgress]:
    """Return the progress of requests a person may see: those in production, then the queue; stage by stage."""
    visible, named = Request.objects.visible_to(user), ("key", "title", "experiment")
    started = visible.filter(state__in=sorted(IN_PRODUCTION)).order_by(*by_place())
    requests = list(started.only(*named)[:MOST_REQUESTS])
    requests += startable().filter(pk__in=visible).only(*named)[: MOST_REQUESTS - len(requests)]
    stages = Stage.objects.only("request", "position", "name", "jobs")
    return [row for rows in progress_of_many(requests, stages).values() for row in rows]


def progress_of_many(requests: list[Request], stages: QuerySet[Stage] | None = None) -> dict[int, list[StageProgress]]:
    """Return the progress of each request by its primary key, stage by stage, in a fixed number of queries.

    `stages` says what to read of them, if not all.
    """
    found: dict[int, list[Stage]] = {request.pk: [] for request in requests}
    rows = Stage.objects.all() if stages is None else stages
    for stage in rows.filter(request__in=requests).order_by("request", "position"):
        found[stage.request_id].append(stage)
    return _progress(requests, found)


def _progress(requests: list[Request], stages: dict[int, list[Stage]]) -> dict[int, list[StageProgress]]:
    found: dict[tuple[str, int | None], dict[str, Sums]] = {}
    totals = (
        HourlyTotals.objects.filter(request_key__in=[request.key for request in requests])
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
        named = found.setdefault((total["request_key"], total["experiment_id"]), {})
        named.setdefault(total["stage"].casefold(), Sums(total["stage"])).add(dict(total))
    progress, again, without = {}, sent_again([request.pk for request in requests]), left_out(requests)
    for request in requests:
        left = found.get((request.key, request.experiment_id), {})
        rows = [
            StageProgress(request, stage.name, stage.jobs, left.pop(stage.name.casefold(), Sums(stage.name)), stage)
            for stage in stages[request.pk]
        ]
        rows += [StageProgress(request, sums.name, None, sums) for sums in left.values()]
        for row in rows:
            row.sums.query = {"request": request.key, "stage": row.stage or NONE}
            row.sums.retried += again.get((request.pk, row.asked.position), 0) if row.asked else 0
            row.left_out = without.get((request.key, row.stage.casefold()), LeftOut())
        progress[request.pk] = rows
    return progress


@dataclass
class Report:
    """The jobs that ended since `since`: all, and by what they are grouped by."""

    since: datetime
    all: Sums
    by_state: list[Sums]
    by_day: list[Sums] = field(default_factory=list)
    by_cluster: list[Sums] = field(default_factory=list)
    by_stage: list[Sums] = field(default_factory=list)

    @property
    def waste_by_state(self) -> list[Sums]:
        """Return the ends that count as failure, dearest first."""
        failures = [sums for sums in self.by_state if sums.failed]
        return sorted(failures, key=lambda sums: -sums.wasted_core_seconds)


def wasted_hours(user: User, *, at: datetime) -> Report:
    """Return what the failures of the last seven days cost, by how the jobs ended."""
    since = hour_of(at - timedelta(days=DAYS))
    rows = _sums(_since(user, since), "state")
    return Report(since, _all(rows, since), _grouped(rows, since, state="state"))


def week(user: User, *, at: datetime, zone: tzinfo) -> Report:
    """Return the report of today and the six days before it, as days are in `zone`."""
    first = at.astimezone(zone).date() - timedelta(days=DAYS - 1)
    since = _midnight(first, zone)
    ends = _since(user, since)
    rows = _sums(ends, "cluster__name", "state")
    named = HourlyTotals.objects.visible_to(user).filter(hour__gte=since).exclude(request_key="")
    dearest = named.values("request_key", "stage").annotate(core=Sum("core_seconds"))
    most = list(dearest.order_by("-core", "request_key", "stage")[:MOST_STAGES])
    keys = {(row["request_key"], row["stage"]) for row in most}
    of_them = _sums(named.filter(request_key__in={key for key, _ in keys}), "request_key", "stage", "state")
    stages = _grouped(
        [row for row in of_them if (row["request_key"], row["stage"]) in keys],
        since,
        request="request_key",
        stage="stage",
    )
    return Report(
        since=since,
        all=_all(rows, since),
        by_state=_grouped(rows, since, state="state"),
        by_day=_by_day(ends, first, zone),
        by_cluster=_grouped(rows, since, cluster="cluster__name"),
        by_stage=sorted(stages, key=lambda sums: -sums.core_seconds),
    )


def _since(user: User, since: datetime) -> QuerySet[HourlyEnds]:
    return HourlyEnds.objects.visible_to(user).filter(hour__gte=since)


def _sums(totals: QuerySet[Any], *groups: str) -> list[dict[str, Any]]:
    sums = totals.values(*groups).annotate(jobs=Sum("jobs"), core_seconds=Sum("core_seconds"))
    return [dict(row) for row in sums.order_by(*groups)]


def _all(rows: list[dict[str, Any]], since: datetime) -> Sums:
    everything = Sums("all", {"ended_from": since.isoformat()})
    for row in rows:
        everything.add(row)
    return everything


def _grouped(rows: Iterable[dict[str, Any]], since: datetime, **filters: str) -> list[Sums]:
    """Sum up rows that agree in some columns; `filters` maps parameters of the job list to those columns."""
    groups: dict[tuple[str, ...], Sums] = {}
    for row in rows:
        values = {name: str(row[column]) for name, column in filters.items()}
        query = {name: value or NONE for name, value in values.items()} | {"ended_from": since.isoformat()}
        groups.setdefault(tuple(values.values()), Sums(" ".join(values.values()), query)).add(row)
    return list(groups.values())


def _by_day(ends: QuerySet[HourlyEnds], first: date, zone: tzinfo) -> list[Sums]:
    days = {}
    for number in range(DAYS):
        day = first + timedelta(days=number)
        end = _midnight(day + timedelta(days=1), zone)
        query = {"ended_from": _midnight(day, zone).isoformat(), "ended_to": end.isoformat()}
        days[day] = Sums(f"{day:%a} {day.day} {day:%b}", query)
    for row in _sums(ends.annotate(day=TruncDate("hour", tzinfo=zone)), "day", "state"):
        if row["day"] in days:  # the clock may have passed midnight since
            days[row["day"]].add(row)
    return list(days.values())


def _midnight(day: date, zone: tzinfo) -> datetime:
    return datetime.combine(day, time(), zone)
