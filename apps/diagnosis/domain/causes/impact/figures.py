"""Read the impact of an incident as a user may see it: sums, excess, and what to retry."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from math import sqrt
from operator import attrgetter
from typing import Any

from django.db.models import Exists, OuterRef, Q, Sum
from django.utils import timezone

from apps.accounts.models import User
from apps.diagnosis.models import DirtyImpact, Impact, ImpactGroup
from apps.jobs.models import QueueCount
from apps.production.models import Request, Stage
from apps.statusboard.models import Incident

#: Standard deviations of a 95 % interval.
SIGMAS = 1.96
#: Shorter delays are ignored.
SHORTEST_DELAY = timedelta(minutes=1)
#: While another count is due, a count of no jobs says nothing if it was made so soon after the
#: start of the incident, or so long ago: accounting is just being read.
_FIRST_MINUTES = timedelta(minutes=15)
_OVERDUE = timedelta(minutes=5)

_OF_STAGE = (
    "exposed",
    "failed",
    "confirmed",
    "succeeded",
    "retried",
    "eligible",
    "eligible_core_seconds",
)
_SUMS = (
    *_OF_STAGE,
    "contained",
    "containing",
    "partial",
    "touching",
    "unknown",
    "failed_core_seconds",
    "confirmed_core_seconds",
)


@dataclass(frozen=True)
class Excess:
    """Failures above the usual number, with the bounds of the 95 % interval.

    `jobs` is the number of jobs with a baseline.
    """

    jobs: int
    failed: int
    expected: float
    value: float
    low: float
    high: float

    @property
    def is_clear(self) -> bool:
        """Whether the excess is more than chance explains."""
        return self.low > 0


@dataclass(frozen=True)
class StageImpact:
    """One stage of a request: its affected jobs, and those left to retry.

    `delay_seconds` is None if unknown.
    """

    request_key: str
    stage: str
    exposed: int
    failed: int
    confirmed: int
    succeeded: int
    retried: int
    eligible: int
    eligible_core_seconds: int
    delay_seconds: float | None

    @property
    def other_causes(self) -> int:
        """Return how many jobs failed, but not because of the service by verdict."""
        return self.failed - self.confirmed


@dataclass(frozen=True)
class Bins:
    """Failed jobs by end time: start of the first bin, length of a bin, and jobs per bin."""

    start: datetime
    seconds: int
    failed: Sequence[int]


@dataclass(frozen=True)
class ImpactFigures:
    """The impact of an incident on the jobs that a user may see.

    `excess` is None without a baseline. `requests_delayed` has of each request the stage that is
    delayed most.
    """

    counted_at: datetime | None
    exposed: int = 0
    contained: int = 0
    containing: int = 0
    partial: int = 0
    touching: int = 0
    unknown: int = 0
    running: int = 0
    failed: int = 0
    confirmed: int = 0
    succeeded: int = 0
    retried: int = 0
    eligible: int = 0
    failed_core_seconds: int = 0
    confirmed_core_seconds: int = 0
    eligible_core_seconds: int = 0
    excess: Excess | None = None
    stages: Sequence[StageImpact] = ()
    experiments: Sequence[tuple[str, int]] = ()
    bins: Bins | None = None
    requests_delayed: Sequence[StageImpact] = field(default=())


def impact_of(incident: Incident, user: User) -> ImpactFigures:
    """Return the impact of an incident as last counted, on jobs that the user may see.

    It counts as unknown if the last count included no job and another count is due, as in the first
    minutes.
    """
    counts = Impact.objects.filter(incident=incident.merged_into_id or incident.pk)
    impact = counts.select_related("incident").first()
    if impact is None:
        return ImpactFigures(None, running=_running(incident, user))
    groups = list(
        ImpactGroup.objects.visible_to(user).filter(impact=impact).select_related("experiment")
    )
    if not any(group.exposed for group in groups) and _is_first_count_due(impact):
        return ImpactFigures(None, running=_running(incident, user))
    stages = _stages(groups)
    return ImpactFigures(
        counted_at=impact.counted_at,
        running=_running(incident, user),
        excess=excess_of(groups),
        stages=stages,
        experiments=_experiments(groups),
        bins=_bins(impact, groups),
        requests_delayed=_delayed_requests(stages),
        **_sums(groups, _SUMS),
    )


def _sums(groups: Collection[ImpactGroup], names: Iterable[str]) -> dict[str, Any]:
    return {name: sum(map(attrgetter(name), groups)) for name in names}


def _is_first_count_due(impact: Impact) -> bool:
    """Return whether the last count included no job of any experiment, and the next may.

    Jobs that need other services mark an incident, too: a count is due most of the time, so that
    alone says nothing.
    """
    was_early = impact.counted_at < impact.incident.started_at + _FIRST_MINUTES
    if not was_early and impact.counted_at > timezone.now() - _OVERDUE:
        return False
    exposed = ImpactGroup.objects.filter(impact=impact).exclude(
        contained=0, containing=0, partial=0
    )
    return DirtyImpact.objects.filter(incident=impact.incident_id).exists() and not exposed.exists()


def _delayed_requests(stages: Iterable[StageImpact]) -> list[StageImpact]:
    """Return of each request the stage with the largest delay; one of unknown delay if all are."""
    largest: dict[str, StageImpact] = {}
    for stage in stages:
        if not stage.eligible or not (stage.delay_seconds is None or _is_delay(stage)):
            continue
        other = largest.get(stage.request_key)
        if other is None or (stage.delay_seconds or 0) > (other.delay_seconds or 0):
            largest[stage.request_key] = stage
    return list(largest.values())


def _is_delay(stage: StageImpact) -> bool:
    return (stage.delay_seconds or 0) >= SHORTEST_DELAY.total_seconds()


def excess_of(groups: Iterable[ImpactGroup]) -> Excess | None:
    """Return the excess of failures over the baselines; None if no group has a baseline.

    Two numbers are uncertain: how many jobs would have failed anyway, and the usual rate, which
    groups with the same baseline share. Both vary by submission, and so more than by single job.
    """
    shared: dict[tuple[object, ...], list[ImpactGroup]] = defaultdict(list)
    for group in groups:
        if group.baseline and group.exposed:
            key = (group.experiment_id, group.stage, group.site_id)
            shared[
                group.baseline, *key[: {"site": 3, "stage": 2, "experiment": 1}[group.baseline]]
            ].append(group)
    if not shared:
        return None
    expected = variance = 0.0
    jobs = failed = 0
    for members in shared.values():
        first = members[0]
        exposed = sum(group.exposed for group in members)
        jobs += exposed
        failed += sum(group.failed for group in members)
        expected += exposed * first.baseline_failed / first.baseline_jobs
        # The 0.5 and 1 keep the rate, and so the variance, above zero.
        rate = (first.baseline_failed + 0.5) / (first.baseline_jobs + 1)
        variance += (
            first.clumping * rate * (1 - rate) * (exposed + exposed**2 / first.baseline_jobs)
        )
    value = failed - expected
    margin = SIGMAS * sqrt(variance)
    return Excess(jobs, failed, expected, value, value - margin, min(value + margin, failed))


def _stages(groups: Iterable[ImpactGroup]) -> list[StageImpact]:
    """Sum the groups with failed jobs by request and stage, most jobs to retry first."""
    by_stage: dict[tuple[str, str], list[ImpactGroup]] = defaultdict(list)
    for group in groups:
        by_stage[group.request_key, group.stage].append(group)
    rows = []
    for (key, stage), members in by_stage.items():
        sums = _sums(members, _OF_STAGE)
        cores = members[0].cores
        delay = sums["eligible_core_seconds"] / cores if cores else None
        rows.append(StageImpact(key, stage, **sums, delay_seconds=delay if sums["eligible"] else 0))
    return sorted(
        (stage for stage in rows if stage.failed),
        key=lambda stage: (-stage.eligible, -stage.failed, stage.request_key),
    )


def _experiments(groups: Iterable[ImpactGroup]) -> list[tuple[str, int]]:
    """Return the number of failed jobs of each experiment, highest first."""
    failed_jobs: dict[str, int] = defaultdict(int)
    for group in groups:
        name = group.experiment.name if group.experiment else "No experiment"
        failed_jobs[name] += group.failed

    affected = [(name, jobs) for name, jobs in failed_jobs.items() if jobs]
    return sorted(affected, key=lambda item: (-item[1], item[0]))


def _bins(impact: Impact, groups: Iterable[ImpactGroup]) -> Bins:
    """Sum the bins of the experiments in these groups, which are those that the user may see."""
    seen = {str(group.experiment_id or 0) for group in groups}
    lists = [counts for experiment, counts in impact.bins.items() if experiment in seen]
    return Bins(
        impact.bins_from, impact.bin_seconds, [sum(counts) for counts in zip(*lists, strict=True)]
    )


def _running(incident: Incident, user: User) -> int:
    """Return the number of running jobs that need the service; 0 once the incident is closed."""
    if not incident.is_open:
        return 0
    stage = Stage.objects.filter(
        request=OuterRef("request"), name=OuterRef("stage"), services=incident.service_id
    )
    counts = QueueCount.objects.filter(Exists(stage) | Q(cluster__service=incident.service_id))
    return (
        counts.filter(request__in=Request.objects.visible_to(user)).aggregate(jobs=Sum("running"))[
            "jobs"
        ]
        or 0
    )
