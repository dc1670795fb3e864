"""What the jobs of a failure group have in common, compared with all jobs of the same clusters and hours."""

from collections import Counter
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from math import exp, sqrt
from typing import Any

from django.db.models import Count

from apps.diagnosis.models import FailureGroup, Verdict
from apps.jobs.models import SHORT_HOST, Job
from apps.production.models import Stage

#: The newest jobs of a group, and the time before its last failure, that are compared.
NEWEST, WITHIN = 2000, timedelta(days=2)
#: A value is compared if so many of the group's jobs have it.
LEAST_JOBS, MOST_VALUES = 3, 12
#: An attribute stands out if the interval of its lift lies above this.
STANDS_OUT = 1.5


@dataclass(frozen=True, slots=True)
class Trait:
    """A value of an attribute: jobs of the group that have it, its share in all jobs, and the lift with interval."""

    attribute: str
    value: str
    jobs: int
    of: int
    expected: float
    lift: float
    low: float
    high: float
    stands_out: bool


def lift(inside: int, group: int, outside: int, everything: int) -> tuple[float, float, float]:
    """Return the ratio of two shares, `inside/group` over `outside/everything`, and its 95 % interval (Katz)."""
    ratio = (inside / group) / (outside / everything)
    error = sqrt(max(0.0, 1 / inside - 1 / group + 1 / outside - 1 / everything))
    return ratio, ratio * exp(-1.96 * error), ratio * exp(1.96 * error)


def traits_of(group: FailureGroup) -> list[Trait]:
    """Compare the newest jobs of a group with all jobs that ended on its clusters meanwhile, highest lift first."""
    verdicts = Verdict.objects.filter(group=group, ended_at__gte=group.last_seen_at - WITHIN)
    newest = list(verdicts.order_by("-ended_at", "-pk").values_list("job", "ended_at", "job__cluster")[:NEWEST])
    if not newest:
        return []
    start, end = newest[-1][1], newest[0][1]
    mine = Job.objects.filter(pk__in=[job for job, _, _ in newest])
    others = Job.objects.filter(
        ended_at__gte=start - timedelta(hours=1), ended_at__lte=end, cluster__in={cluster for _, _, cluster in newest}
    )
    inside, everything = _counts(mine), _counts(others)
    total = sum(everything["cluster"].values())
    found = []
    for attribute, values in inside.items():
        for value, jobs in values.most_common(3):
            if value and jobs >= LEAST_JOBS:
                outside = max(everything[attribute][value], jobs)
                ratio, low, high = lift(jobs, len(newest), outside, max(total, outside))
                share = outside / max(total, outside)
                found.append(Trait(attribute, value, jobs, len(newest), share, ratio, low, high, low > STANDS_OUT))
    return sorted(found, key=lambda each: (-each.low, each.attribute))[:MOST_VALUES]


def _counts(jobs: Any) -> dict[str, Counter[str]]:
    """Count jobs by host, cluster, exit code, hour, experiment, stage and release."""
    counts: dict[str, Counter[str]] = {
        name: Counter() for name in ("host", "cluster", "exit code", "hour", "experiment", "stage", "release")
    }
    for host, number in jobs.order_by().values_list(SHORT_HOST).annotate(Count("pk")):
        counts["host"][host] += number
    releases = _releases(jobs)
    names = ("cluster__name", "exit_code", "ended_at__hour", "experiment__key", "request_key", "stage")
    for cluster, code, hour, experiment, key, stage, number in (
        jobs.order_by().values_list(*names).annotate(Count("pk"))
    ):
        counts["cluster"][cluster] += number
        counts["exit code"][str(code)] += number
        counts["hour"][f"{hour:02}:00 UTC"] += number
        counts["experiment"][experiment or ""] += number
        counts["stage"][stage] += number
        counts["release"][releases.get((key, stage), "")] += number
    return counts


def _releases(jobs: Any) -> dict[tuple[str, str], str]:
    keys = jobs.order_by().exclude(request_key="").values("request_key").distinct()
    stages = Stage.objects.filter(request__key__in=keys).values_list("request__key", "name", "release")
    return {(key, name): release for key, name, release in stages}


def store_profile(*, group: FailureGroup, at: datetime) -> None:
    """Compute and store what the jobs of a group have in common."""
    traits = [asdict(trait) for trait in traits_of(group)]
    FailureGroup.objects.filter(pk=group.pk).update(profile=traits, profiled_at=at)
