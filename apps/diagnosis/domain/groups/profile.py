"""Find what the jobs of a failure group have in common.

They are compared with all jobs of the same clusters and hours.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from django.db.models import Count, F, Q, QuerySet, Sum

from apps.diagnosis.models import DailyCauseTotals, FailureGroup, Verdict
from apps.jobs.domain.statistics.intervals import compare_rates
from apps.jobs.models import SHORT_HOST, Job
from apps.production.models import Stage
from apps.statusboard.domain.board.outages import OUTAGES
from apps.statusboard.models import StateInterval

#: Only the newest jobs of a group, within this time before its last failure, are compared.
NEWEST = 2000
WITHIN = timedelta(days=1)
#: A profile is recomputed once its group has grown by this share, or after this time if the group
#: has grown at all.
GROWTH = 0.2
AGE = timedelta(hours=1)
#: Groups that failed within this time are kept up to date, at most this many per run.
KEPT_UP = timedelta(days=2)
MOST_GROUPS = 20
#: A value is compared if at least this many of the group's jobs have it.
LEAST_JOBS = 3
MOST_VALUES = 12
#: An attribute stands out if the interval of its lift lies above this value.
STANDS_OUT = 1.5
#: A finding applies to at least this share of the group's jobs: a few share a host by chance.
LEAST_SHARE = 0.25
#: Maximum number of findings to show; the other values are folded.
MOST_FINDINGS = 4
#: The texts of the traits of jobs, by attribute.
_PHRASES = {
    "host": "ran on {}",
    "cluster": "ran on {}",
    "exit code": "ended with exit code {}",
    "hour": "ended in the hour from {}",
    "experiment": "ran for {}",
    "stage": "ran stage {}",
    "release": "ran release {}",
}


@dataclass(frozen=True, slots=True)
class JobTrait:
    """A value of an attribute: how many of a group's jobs have it, and its expected share and lift.

    `low` and `high` are the bounds of the interval of the lift.
    """

    attribute: str
    value: str
    jobs: int
    of: int
    expected: float
    lift: float
    low: float
    high: float
    stands_out: bool

    @property
    def expected_jobs(self) -> float:
        """How many of the group's jobs would have it if they were like the others."""
        return self.expected * self.of

    @property
    def excess(self) -> float:
        """How many more of the group's jobs have it than expected."""
        return self.jobs - self.expected_jobs

    @property
    def is_finding(self) -> bool:
        """Return whether many of the group's jobs have it, and more often than others."""
        return self.stands_out and self.jobs >= LEAST_SHARE * self.of

    @property
    def phrase(self) -> str:
        """Return what these jobs did: `ran on wn-0312`."""
        return _PHRASES[self.attribute].format(self.value)


@dataclass(frozen=True, slots=True)
class Profile:
    """What the newest jobs of a group have in common, most jobs beyond the expected first.

    `jobs` is their number, `start` and `end` are the first and last end time, and `total` is the
    number of all jobs in the group.
    """

    jobs: int
    start: datetime
    end: datetime
    total: int
    traits: tuple[JobTrait, ...]

    @property
    def outstanding(self) -> list[JobTrait]:
        """Return what the jobs of the group have more often than others."""
        return [trait for trait in self.traits if trait.is_finding]

    @property
    def findings(self) -> list[list[JobTrait]]:
        """Return the outstanding traits to show, those with equal figures together."""
        return self._outstanding_together[:MOST_FINDINGS]

    @property
    def other_traits(self) -> list[JobTrait]:
        """Return the traits that `findings` leaves out, except what all jobs have."""
        shown = []
        for traits in self.findings:
            shown += traits
        return [trait for trait in self.traits if trait not in shown and trait.expected < 1]

    @property
    def _outstanding_together(self) -> list[list[JobTrait]]:
        by_figures: dict[tuple[int, float], list[JobTrait]] = {}
        for trait in self.outstanding:
            by_figures.setdefault((trait.jobs, trait.expected), []).append(trait)
        return list(by_figures.values())


def profile_of(group: FailureGroup) -> Profile | None:
    """Return the stored profile of a group; None if there is none yet."""
    if not group.profile:
        return None
    stored = group.profile
    start, end = (datetime.fromisoformat(stored[name]) for name in ("start", "end"))
    traits = by_excess(JobTrait(**trait) for trait in stored["traits"])
    return Profile(stored["jobs"], start, end, stored["total"], traits)


def by_excess(traits: Iterable[JobTrait]) -> tuple[JobTrait, ...]:
    """Return traits in the order in which they explain most jobs beyond the expected."""
    attributes = list(_PHRASES)

    def rank(trait: JobTrait) -> tuple[float, int, str]:
        return -trait.excess, attributes.index(trait.attribute), trait.value

    return tuple(sorted(traits, key=rank))


def compute_profile(group: FailureGroup, *, total: int) -> Profile | None:
    """Compare the newest jobs of a group with all jobs that ended on its clusters meanwhile.

    Return None for a group without recent jobs.
    """
    verdicts = Verdict.objects.filter(group=group, ended_at__gte=group.last_seen_at - WITHIN)
    newest = list(
        verdicts.order_by("-ended_at", "-pk").values_list("job", "ended_at", "job__cluster")[
            :NEWEST
        ]
    )
    if not newest:
        return None
    start = newest[-1][1]
    end = newest[0][1]
    others = Job.objects.filter(
        ended_at__gte=start - timedelta(hours=1),
        ended_at__lte=end,
        cluster__in={cluster for _, _, cluster in newest},
    )
    inside = _counts(Job.objects.filter(pk__in=[job for job, _, _ in newest]))
    for hour in _hours_of_outages(group.service, start, end):
        inside["hour"].pop(hour, None)
    return Profile(len(newest), start, end, total, _compare(inside, _counts(others), len(newest)))


def _hours_of_outages(service: str, start: datetime, end: datetime) -> set[str]:
    """Return the hours of day in which a service had an outage, as `_counts` names them.

    That jobs fail because of a service while it is down is no finding.
    """
    first = start - timedelta(hours=1)
    outages = StateInterval.objects.filter(service__name__iexact=service, state__in=OUTAGES)
    hours = set()
    for began, ended in outages.overlapping(first, end).values_list("started_at", "ended_at"):
        hour = max(began, first).astimezone(UTC).replace(minute=0, second=0, microsecond=0)
        # Jobs that wait for the service may end up to an hour after it is back.
        last = min(ended or end, end) + timedelta(hours=1)
        while hour <= last:
            hours.add(_hour_name(hour.hour))
            hour += timedelta(hours=1)
    return hours


def _hour_name(hour: int) -> str:
    return f"{hour:02}:00 UTC"


def _compare(
    inside: dict[str, Counter[str]], everything: dict[str, Counter[str]], jobs: int
) -> tuple[JobTrait, ...]:
    """Return the most frequent values of each attribute in a group's jobs, most excess first."""
    total = sum(everything["cluster"].values())
    traits = []
    for attribute, values in inside.items():
        for value, having in values.most_common(3):
            if value and having >= LEAST_JOBS:
                outside = max(everything[attribute][value], having)
                share = outside / max(total, outside)
                ratio, low, high = compare_rates(having, jobs, outside, max(total, outside))
                traits.append(
                    JobTrait(
                        attribute, value, having, jobs, share, ratio, low, high, low > STANDS_OUT
                    )
                )
    return by_excess(traits)[:MOST_VALUES]


def _counts(jobs: Any) -> dict[str, Counter[str]]:
    """Count jobs by host, cluster, exit code, hour, experiment, stage and release."""
    counts: dict[str, Counter[str]] = {}
    for name in ("host", "cluster", "exit code", "hour", "experiment", "stage", "release"):
        counts[name] = Counter()
    for host, number in jobs.order_by().values_list(SHORT_HOST).annotate(Count("pk")):
        counts["host"][host] += number
    releases = _releases(jobs)
    names = (
        "cluster__name",
        "exit_code",
        "ended_at__hour",
        "experiment__name",
        "request_key",
        "stage",
    )
    for cluster, code, hour, experiment, key, stage, number in (
        jobs.order_by().values_list(*names).annotate(Count("pk"))
    ):
        counts["cluster"][cluster] += number
        counts["exit code"][str(code)] += number
        counts["hour"][_hour_name(hour)] += number
        counts["experiment"][experiment or ""] += number
        counts["stage"][stage] += number
        counts["release"][releases.get((key, stage), "")] += number
    return counts


def _releases(jobs: Any) -> dict[tuple[str, str], str]:
    keys = jobs.order_by().exclude(request_key="").values("request_key").distinct()
    stages = Stage.objects.filter(request__key__in=keys).values_list(
        "request__key", "name", "release"
    )
    return {(key, name): release for key, name, release in stages}


def store_due_profiles(*, at: datetime) -> int:
    """Recompute the profiles of groups that have grown, oldest first; return their number."""
    recent = Q(profiled_at=None) | Q(last_seen_at__gte=at - KEPT_UP)
    groups = FailureGroup.objects.filter(recent).order_by(
        F("profiled_at").asc(nulls_first=True), "-last_seen_at"
    )
    totals = _totals(groups)
    due = [group for group in groups if _is_due(group, totals.get(group.pk, 0), at)][:MOST_GROUPS]
    for group in due:
        profile = compute_profile(group, total=totals[group.pk])
        FailureGroup.objects.filter(pk=group.pk).update(profile=_stored(profile), profiled_at=at)
    return len(due)


def _totals(groups: QuerySet[FailureGroup]) -> dict[int, int]:
    counted = DailyCauseTotals.objects.filter(group__in=groups.order_by().values("pk")).order_by()
    return dict(counted.values_list("group").annotate(all_jobs=Sum("jobs")))


def _is_due(group: FailureGroup, total: int, at: datetime) -> bool:
    """Return whether a profile is due.

    This is so if its group grew by a fifth, or if it grew at all and an hour has passed.
    """
    if not total:
        return False  # not counted yet
    profile = profile_of(group)
    is_old = group.profiled_at is None or group.profiled_at <= at - AGE
    if profile is None:
        return is_old
    has_grown_much = total >= (1 + GROWTH) * profile.total
    return has_grown_much or (is_old and total != profile.total)


def _stored(profile: Profile | None) -> dict[str, Any]:
    """Return a profile as JSON."""
    if profile is None:
        return {}
    return asdict(profile) | {"start": profile.start.isoformat(), "end": profile.end.isoformat()}
