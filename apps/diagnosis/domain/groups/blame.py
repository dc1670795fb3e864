"""Find hosts and releases on which nearly all jobs fail, whatever the error, and group the jobs."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from math import exp, log
from typing import Any

from django.db import transaction
from django.db.models import Count, F, Func, Q, QuerySet, TextField, Value
from django.db.models.functions import Cast, Concat

from apps.clusters.schedulers.base import JobState
from apps.core.domain.events import publish
from apps.diagnosis.domain.causes.totals import mark_dirty
from apps.diagnosis.domain.groups.fingerprints import Fingerprint
from apps.diagnosis.domain.groups.triage import HOST_VERDICTS, HOST_WITHIN, RELEASE_VERDICTS
from apps.diagnosis.enums import GroupKind, VerdictKind
from apps.diagnosis.models import FailureGroup, Verdict
from apps.jobs.domain.records.conversion import hour_of
from apps.jobs.enums import DEBUG_STAGE, FAILED_STATES
from apps.jobs.models import SHORT_HOST, Job

#: A broken host: minimum number of failures, and of stages or experiments among them, in
#: `HOST_WITHIN`; the share of failures in a run of jobs, and its ratio to the share on other hosts;
#: the maximum probability of this at the rate of the other hosts.
HOST_JOBS = 5
HOST_KINDS = 2
HOST_SHARE = 0.8
HOST_FACTOR = 4
HOST_CHANCE = 1e-6
#: A bad release: minimum number of failures in this time, their share of all its jobs, the ratio to
#: the share of other releases in the same stages (with at least as many jobs), and the minimum
#: number of submissions and hosts.
RELEASE_WITHIN = timedelta(hours=24)
RELEASE_JOBS = 10
RELEASE_SHARE = 0.5
RELEASE_FACTOR = 4
RELEASE_SUBMISSIONS = 3
RELEASE_HOSTS = 2


@dataclass(frozen=True, slots=True)
class FailingHost:
    """A host on which nearly every job fails, whether or not other hosts are better.

    `host` is its short name. `failed_jobs` are the primary keys of the jobs that failed in its
    densest run of failures, in which `ended` jobs ended between `first_ended_at` and
    `last_ended_at`.
    """

    cluster_id: int
    host: str
    failed_jobs: tuple[int, ...]
    ended: int
    first_ended_at: datetime
    last_ended_at: datetime

    @property
    def failed(self) -> int:
        """The number of jobs that failed."""
        return len(self.failed_jobs)


def find_broken_hosts(*, at: datetime) -> list[FailureGroup]:
    """Group the failures of each host on which nearly every job failed in the hours before `at`."""
    recent = _recent_verdicts(at)
    groups = []
    for failing in find_failing_hosts(at=at):
        if stands_out(failing, at=at):
            verdicts = recent.filter(job__in=failing.failed_jobs)
            groups.append(_host_group(failing.cluster_id, failing.host, verdicts, at))
    return groups


def find_failing_hosts(
    *, at: datetime, started_after: Callable[[int, str], datetime | None] | None = None
) -> list[FailingHost]:
    """Return the hosts on which nearly every job failed in the hours before `at`.

    `started_after` returns, for cluster and host, a time up to which the starts of jobs do not
    count; None if all count.
    """
    recent = _recent_verdicts(at)
    hosts = []
    for cluster, host in _often_failing_hosts(recent):
        since = started_after(cluster, host) if started_after else None
        failing = _failing_run(cluster, host, at, since)
        if failing and _often_failing_hosts(recent.filter(job__in=failing.failed_jobs)):
            hosts.append(failing)
    return hosts


def _recent_verdicts(at: datetime) -> QuerySet[Verdict]:
    recent = Verdict.objects.filter(
        ended_at__gte=at - HOST_WITHIN, ended_at__lte=at, verdict__in=HOST_VERDICTS
    )
    return recent.filter(group__kind__in=[GroupKind.ERROR, GroupKind.HOST]).exclude(job__host="")


def _often_failing_hosts(verdicts: QuerySet[Verdict]) -> list[tuple[int, str]]:
    """Return cluster and name of the hosts with enough of these verdicts to be blamed."""
    hosts = (
        verdicts.annotate(short=_host("job__host")).order_by().values_list("job__cluster", "short")
    )
    counted = hosts.annotate(jobs=Count("pk"), kinds=Count(_kind(), distinct=True))
    often = counted.filter(jobs__gte=HOST_JOBS, kinds__gte=HOST_KINDS)
    return [(cluster, host) for cluster, host, _, _ in often]


def _host(name: str) -> Func:
    return Func(F(name), Value("."), Value(1), function="split_part", output_field=TextField())


def _kind() -> Concat:
    return Concat(
        Cast("experiment", TextField()), Value("/"), F("job__stage"), output_field=TextField()
    )


def _failing_run(
    cluster: int, host: str, at: datetime, started_after: datetime | None
) -> FailingHost | None:
    """Return the run of jobs of a host in which nearly every job failed; None if there is none.

    Jobs are sorted by start, because a job that started before the host broke may complete long
    after.
    """
    ended = _jobs_before(cluster, at).annotate(short=SHORT_HOST)
    ended = ended.filter(
        short=host, started_at__isnull=False, state__in=[*FAILED_STATES, JobState.COMPLETED]
    )
    if started_after:
        ended = ended.filter(started_at__gt=started_after)
    rows = list(ended.order_by("started_at", "pk").values_list("pk", "state", "ended_at"))
    run = rows[_densest_run([state != JobState.COMPLETED for _, state, _ in rows])]
    failed = [row for row in run if row[1] != JobState.COMPLETED]
    if not failed or len(failed) / len(run) < HOST_SHARE:
        return None
    ends = [row[2] for row in failed]
    return FailingHost(
        cluster_id=cluster,
        host=host,
        failed_jobs=tuple(row[0] for row in failed),
        ended=len(run),
        first_ended_at=min(ends),
        last_ended_at=max(ends),
    )


def stands_out(failing: FailingHost, *, at: datetime) -> bool:
    """Return whether a host fails far more of its jobs than the other hosts of its cluster."""
    share = failing.failed / failing.ended
    jobs = _jobs_before(failing.cluster_id, at).annotate(short=SHORT_HOST)
    others = jobs.exclude(short=failing.host)
    elsewhere, meanwhile = _failed_shares(others, failing.first_ended_at, failing.last_ended_at)
    is_by_chance = _chance(failing.ended, share, max(elsewhere, meanwhile)) > HOST_CHANCE
    return share >= HOST_FACTOR * elsewhere and not is_by_chance


def _jobs_before(cluster: int, at: datetime) -> QuerySet[Job]:
    within: dict[str, Any] = {"ended_at__gte": at - HOST_WITHIN, "ended_at__lte": at}
    return Job.objects.filter(cluster=cluster, **within)


def _densest_run(failures: Sequence[bool]) -> slice:
    """Return the run with the most failures in which a share of `HOST_SHARE` fails.

    It reaches from its first to its last failure.
    """
    penalty = HOST_SHARE / (1 - HOST_SHARE)
    best = 0.0
    score = 0.0
    begin = 0
    run = slice(0, 0)
    for place, has_failed in enumerate(failures):
        if score <= 0:
            score = 0.0
            begin = place
        score += 1 if has_failed else -penalty
        if score > best:
            best = score
            run = slice(begin, place + 1)
    return run


def _failed_shares(jobs: QuerySet[Job], start: datetime, end: datetime) -> tuple[float, float]:
    """Return the failed share of these jobs, and of those of them that ended in [start, end].

    A service outage in [start, end] makes jobs fail on every host.
    """
    during = Q(ended_at__gte=start, ended_at__lte=end)
    failed = Q(state__in=FAILED_STATES)
    counts = jobs.aggregate(
        all=Count("pk"),
        bad=Count("pk", filter=failed),
        all_during=Count("pk", filter=during),
        bad_during=Count("pk", filter=during & failed),
    )
    if not counts["all"]:
        return 1.0, 1.0  # no jobs to compare with
    share = max(counts["bad"], 1) / (counts["all"] + 1)
    return share, counts["bad_during"] / max(counts["all_during"], 1)


def _chance(jobs: int, share: float, rate: float) -> float:
    """Return an upper bound for the probability that this share or more fails (Chernoff).

    `rate` is the rate at which a single job fails.
    """
    if share <= rate:
        return 1.0
    divergence = share * log(share / rate)
    if share < 1:
        divergence += (1 - share) * log((1 - share) / (1 - rate))
    return exp(-jobs * divergence)


def _host_group(cluster: int, host: str, verdicts: QuerySet[Verdict], at: datetime) -> FailureGroup:
    key = Fingerprint(VerdictKind.SERVICE, cause="host", service=str(cluster), message=host)
    title = f"{host}: nearly every job fails"
    return _blame(
        key, verdicts, at, kind=GroupKind.HOST, cluster_id=cluster, host=host, title=title
    )


def find_bad_releases(*, at: datetime) -> list[FailureGroup]:
    """Group the failures of each release whose jobs mostly fail on any host."""
    recent = Verdict.objects.filter(
        ended_at__gte=at - RELEASE_WITHIN, ended_at__lte=at, verdict__in=RELEASE_VERDICTS
    )
    recent = (
        recent.filter(group__kind=GroupKind.ERROR).exclude(job__release="").exclude(experiment=None)
    )
    counted = (
        recent.order_by()
        .values_list("experiment", "job__release")
        .annotate(
            jobs=Count("pk"),
            submissions=Count(_submission(), distinct=True),
            hosts=Count("job__host", distinct=True),
        )
        .filter(
            jobs__gte=RELEASE_JOBS, submissions__gte=RELEASE_SUBMISSIONS, hosts__gte=RELEASE_HOSTS
        )
    )
    groups = []
    for experiment, release, *_ in counted:
        if _is_bad(experiment, release, at):
            groups.append(
                _release_group(
                    experiment,
                    release,
                    recent.filter(experiment=experiment, job__release=release),
                    at,
                )
            )
    return groups


def _submission() -> Concat:
    return Concat(
        Cast("job__cluster", TextField()), Value("/"), F("job__spool_id"), output_field=TextField()
    )


def _is_bad(experiment: int, release: str, at: datetime) -> bool:
    """Return whether most jobs of a release fail, but few of other releases in the same stages."""
    within: dict[str, Any] = {"ended_at__gte": at - RELEASE_WITHIN, "ended_at__lte": at}
    jobs = Job.objects.filter(experiment=experiment, **within).exclude(stage__endswith=DEBUG_STAGE)
    stages = jobs.filter(release=release, state__in=FAILED_STATES).values("stage")
    has = Q(release=release)
    failed = Q(state__in=FAILED_STATES)
    sums = jobs.filter(stage__in=stages).aggregate(
        own=Count("pk", filter=has),
        bad=Count("pk", filter=has & failed),
        others=Count("pk", filter=~has & ~Q(release="")),
        others_bad=Count("pk", filter=~has & ~Q(release="") & failed),
    )
    # If a stage has no other release, the stage itself may be to blame.
    if sums["others"] < RELEASE_JOBS:
        return False
    share: float = sums["bad"] / sums["own"] if sums["own"] else 0.0
    elsewhere: float = sums["others_bad"] / sums["others"]
    return share >= RELEASE_SHARE and share >= RELEASE_FACTOR * elsewhere


def _release_group(
    experiment: int, release: str, verdicts: QuerySet[Verdict], at: datetime
) -> FailureGroup:
    key = Fingerprint(VerdictKind.CODE, cause="release", service=str(experiment), message=release)
    title = f"Release {release}: most jobs fail"
    return _blame(
        key,
        verdicts,
        at,
        kind=GroupKind.RELEASE,
        experiment_id=experiment,
        release=release,
        title=title,
    )


@transaction.atomic
def _blame(
    key: Fingerprint, verdicts: QuerySet[Verdict], at: datetime, **fields: Any
) -> FailureGroup:
    """Move these verdicts into the group of the host or release; open the group if needed."""
    rows = list(
        verdicts.exclude(group__fingerprint=key.digest).select_related("group").order_by("ended_at")
    )
    if not rows:
        return FailureGroup.objects.get(fingerprint=key.digest)
    lines = Counter(row.group.line for row in rows if row.group)
    line = lines.most_common(1)[0][0] if lines else ""
    group, created = FailureGroup.objects.get_or_create(
        fingerprint=key.digest,
        defaults=fields
        | {
            "verdict": key.verdict,
            "line": line,
            "status_at": at,
            "first_seen_at": rows[0].ended_at,
            "last_seen_at": rows[-1].ended_at,
        },
    )
    Verdict.objects.filter(pk__in=[row.pk for row in rows]).update(group=group)
    mark_dirty({hour_of(row.ended_at) for row in rows})
    if created:
        publish(
            kind="group.new", target=group, by="diagnosis", at=at, new=group.verdict, reason=line
        )
    return group
