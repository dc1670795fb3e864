"""Find hosts on which nearly every job fails, whatever the error, or every job of some kinds.

A kind of jobs is a stage of an experiment. The failures of a host count against it only where other
hosts of its cluster run the same, or all, kinds of jobs far better.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from math import exp, log
from typing import NamedTuple

from django.db.models import Count, DateTimeField, F, Func, Q, QuerySet, TextField, Value

from apps.clusters.schedulers.base import JobState
from apps.diagnosis.domain.groups.triage import HOST_VERDICTS, HOST_WITHIN
from apps.diagnosis.enums import GroupKind
from apps.diagnosis.models import Verdict
from apps.jobs.enums import FAILED_STATES, PROBE_JOB_PREFIX
from apps.jobs.models import SHORT_HOST, Job

#: A broken host: minimum number of failures in `HOST_WITHIN`; the share of failures in a run of
#: jobs, and its ratio to the share on other hosts; the maximum probability of this at the rate of
#: the other hosts.
HOST_JOBS = 5
HOST_SHARE = 0.8
HOST_FACTOR = 4
HOST_CHANCE = 1e-6
#: A suspect: minimum number of failures in `SUSPECT_WITHIN`, with the same share.
SUSPECT_JOBS = 2
SUSPECT_WITHIN = timedelta(hours=1)
#: Minimum number of kinds of jobs with failures to compare a host with all jobs of other hosts;
#: with fewer kinds, only jobs of the same kinds are compared.
HOST_KINDS = 2
#: Minimum number of failed jobs of a kind in a run, for the kind to count as failing on a host.
_OF_A_KIND = 2
#: Jobs elsewhere are counted by periods of this length.
_PERIOD = timedelta(minutes=5)

Kind = tuple[int | None, str]
#: The time up to which the starts of jobs do not count, for a cluster and a host.
StartedAfter = Callable[[int, str], datetime | None]
_Name = Kind | str | None
_ALL_JOBS = None


class _EndedJob(NamedTuple):
    """An ended job of a host; `is_blamed` if it failed in a way that can be the host's fault."""

    pk: int
    kind: Kind
    array: str
    started_at: datetime
    ended_at: datetime
    has_failed: bool
    is_blamed: bool


@dataclass(frozen=True, slots=True)
class FailingHost:
    """A host on which nearly every job fails, whether or not other hosts are better.

    `host` is its short name. `failed_jobs` are the primary keys of the jobs that failed in its
    densest run of failures, in which `ended` jobs ended between `first_ended_at` and
    `last_ended_at`. `jobs_by_kind` counts these `ended` jobs. With `of_kinds` jobs of these kinds
    alone were read, since jobs of others are fine; `array` is set if all came from one array.
    """

    cluster_id: int
    host: str
    failed_jobs: tuple[int, ...]
    ended: int
    first_ended_at: datetime
    last_ended_at: datetime
    jobs_by_kind: Mapping[Kind, int]
    of_kinds: bool = False
    array: str = ""

    @property
    def failed(self) -> int:
        """The number of jobs that failed."""
        return len(self.failed_jobs)


def find_failing_hosts(
    *, at: datetime, started_after: StartedAfter | None = None
) -> list[FailingHost]:
    """Return the hosts on which nearly every job, or every job of some kinds, failed before `at`.

    `started_after` returns, for cluster and host, a time up to which the starts of jobs do not
    count; None if all count. Takes three queries.
    """
    return _find_hosts(HOST_JOBS, HOST_WITHIN, at, started_after)


def find_suspects(*, at: datetime, started_after: StartedAfter | None = None) -> list[FailingHost]:
    """Return the hosts on which the last jobs failed, too few to tell whether the host is broken.

    Hosts that `find_failing_hosts` returns are among them. Takes three queries.
    """
    return _find_hosts(SUSPECT_JOBS, SUSPECT_WITHIN, at, started_after)


def _find_hosts(
    least: int, within: timedelta, at: datetime, started_after: StartedAfter | None
) -> list[FailingHost]:
    """Return the hosts with a run of `least` or more failures in the time before `at`."""
    blamed = recent_host_verdicts(at, within).annotate(short=_short_host("job__host"))
    counted = blamed.order_by().values_list("job__cluster", "short").annotate(jobs=Count("pk"))
    often = counted.filter(jobs__gte=least)
    suspects = sorted((cluster_id, host) for cluster_id, host, _ in often)
    if not suspects:
        return []

    of_suspects = Q(job__cluster__in={cluster_id for cluster_id, _ in suspects})
    blamed = blamed.filter(of_suspects, short__in={host for _, host in suspects})
    blamed_jobs = set(blamed.values_list("job_id", flat=True))
    jobs_by_host = _ended_jobs(suspects, blamed_jobs, _recent(at, within))
    failing_hosts = []
    for cluster_id, host in suspects:
        since = started_after(cluster_id, host) if started_after else None
        jobs = jobs_by_host[cluster_id, host]
        if since is not None:
            jobs = [job for job in jobs if job.started_at > since]
        failing = _failing_in_all(cluster_id, host, jobs, least)
        if failing is None:
            failing = _failing_in_kinds(cluster_id, host, jobs, least)
        if failing is not None:
            failing_hosts.append(failing)
    return failing_hosts


def recent_host_verdicts(at: datetime, within: timedelta = HOST_WITHIN) -> QuerySet[Verdict]:
    """Return the verdicts of the hours before `at` on failures that can be the fault of a host."""
    recent = Verdict.objects.filter(
        ended_at__gte=at - within, ended_at__lte=at, verdict__in=HOST_VERDICTS
    )
    of_hosts = recent.filter(group__kind__in=[GroupKind.ERROR, GroupKind.HOST])
    return of_hosts.exclude(job__host="").exclude(job__name__startswith=PROBE_JOB_PREFIX)


def _short_host(name: str) -> Func:
    return Func(F(name), Value("."), Value(1), function="split_part", output_field=TextField())


def _ended_jobs(
    hosts: Sequence[tuple[int, str]], blamed_jobs: Collection[int], is_recent: Q
) -> Mapping[tuple[int, str], list[_EndedJob]]:
    """Return the completed and failed jobs of these hosts, sorted by start.

    A job that started before the host broke may complete long after.
    """
    recent = Job.objects.filter(is_recent, cluster__in={cluster_id for cluster_id, _ in hosts})
    ended = recent.annotate(short=SHORT_HOST).filter(
        short__in={host for _, host in hosts},
        started_at__isnull=False,
        state__in=[*FAILED_STATES, JobState.COMPLETED],
    )
    columns = (
        "cluster_id",
        "short",
        "pk",
        "experiment_id",
        "stage",
        "spool_id",
        "started_at",
        "ended_at",
        "state",
    )
    jobs: dict[tuple[int, str], list[_EndedJob]] = defaultdict(list)
    for row in ended.order_by("started_at", "pk").values_list(*columns):
        cluster_id, host, pk, experiment, stage, array, started_at, ended_at, state = row
        job = _EndedJob(
            pk=pk,
            kind=(experiment, stage),
            array=array,
            started_at=started_at,
            ended_at=ended_at,
            has_failed=state != JobState.COMPLETED,
            is_blamed=pk in blamed_jobs,
        )
        jobs[cluster_id, host].append(job)
    return jobs


def _recent(at: datetime, within: timedelta = HOST_WITHIN) -> Q:
    """Select the jobs that ended in the time before `at`, but for probe jobs."""
    is_probe_job = Q(name__startswith=PROBE_JOB_PREFIX)
    return Q(ended_at__gte=at - within, ended_at__lte=at) & ~is_probe_job


def _failing_in_all(
    cluster_id: int, host: str, jobs: Sequence[_EndedJob], least: int
) -> FailingHost | None:
    """Return the run of jobs in which nearly every job failed, of several kinds; None without."""
    run = _failing_run(jobs)
    blamed_kinds = {job.kind for job in run if job.is_blamed}
    if len(blamed_kinds) < HOST_KINDS:
        return None
    return _failing_host(cluster_id, host, run, least)


def _failing_in_kinds(
    cluster_id: int, host: str, jobs: Sequence[_EndedJob], least: int
) -> FailingHost | None:
    """Return the run of the kinds of jobs of which nearly every job failed; None without."""
    jobs_by_kind: dict[Kind, list[_EndedJob]] = defaultdict(list)
    for job in jobs:
        jobs_by_kind[job.kind].append(job)
    failing_kinds = set()
    for kind, of_kind in jobs_by_kind.items():
        run = _failing_run(of_kind)
        if sum(job.is_blamed for job in run) >= _OF_A_KIND:
            failing_kinds.add(kind)
    run = _failing_run([job for job in jobs if job.kind in failing_kinds])
    return _failing_host(cluster_id, host, run, least, of_kinds=True)


def _failing_run(jobs: Sequence[_EndedJob]) -> Sequence[_EndedJob]:
    return jobs[densest_run([job.has_failed for job in jobs])]


def _failing_host(
    cluster_id: int, host: str, run: Sequence[_EndedJob], least: int, *, of_kinds: bool = False
) -> FailingHost | None:
    failed = [job for job in run if job.has_failed]
    blamed = [job for job in run if job.is_blamed]
    if len(blamed) < least or len(failed) / len(run) < HOST_SHARE:
        return None
    ends = [job.ended_at for job in failed]
    arrays = {job.array for job in failed}
    return FailingHost(
        cluster_id=cluster_id,
        host=host,
        failed_jobs=tuple(job.pk for job in failed),
        ended=len(run),
        first_ended_at=min(ends),
        last_ended_at=max(ends),
        jobs_by_kind=Counter(job.kind for job in run),
        of_kinds=of_kinds,
        array=arrays.pop() if of_kinds and len(arrays) == 1 else "",
    )


def densest_run(failures: Sequence[bool]) -> slice:
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


class _Tallies:
    """Numbers of ended and failed jobs by name and period.

    A name is a kind of jobs, the array of some, or `_ALL_JOBS`.
    """

    def __init__(self) -> None:
        self._by_name: dict[_Name, dict[datetime, tuple[int, int]]] = defaultdict(dict)

    def add(self, name: _Name, period: datetime, ended: int, failed: int) -> None:
        periods = self._by_name[name]
        ended_before, failed_before = periods.get(period, (0, 0))
        periods[period] = (ended_before + ended, failed_before + failed)

    def sums(self, name: _Name, since: datetime, until: datetime) -> tuple[int, int]:
        """Return how many jobs ended and failed in the periods that begin in [since, until]."""
        ended = 0
        failed = 0
        for period, (ended_in_period, failed_in_period) in self._by_name[name].items():
            if since <= period <= until:
                ended += ended_in_period
                failed += failed_in_period
        return ended, failed


class _Comparison:
    """The jobs of a cluster in the hours before `at`, to compare some hosts with all others."""

    def __init__(self, cluster_id: int, hosts: Sequence[FailingHost], at: datetime) -> None:
        self._at = at
        self._on_all_hosts = _Tallies()
        self._by_host: dict[str, _Tallies] = defaultdict(_Tallies)
        recent = Job.objects.filter(_recent(at), cluster=cluster_id)
        jobs = recent.annotate(period=_period("ended_at"))
        counts = {
            "ended_jobs": Count("pk"),
            "bad_jobs": Count("pk", filter=Q(state__in=FAILED_STATES)),
        }

        by_kind = jobs.order_by().values_list("experiment", "stage", "period")
        for experiment, stage, period, ended, bad in by_kind.annotate(**counts):
            self._on_all_hosts.add(_ALL_JOBS, period, ended, bad)
            self._on_all_hosts.add((experiment, stage), period, ended, bad)

        arrays = {host.array for host in hosts if host.array}
        by_array = jobs.filter(spool_id__in=arrays).order_by().values_list("spool_id", "period")
        for array, period, ended, bad in by_array.annotate(**counts):
            self._on_all_hosts.add(array, period, ended, bad)

        own = jobs.annotate(short=SHORT_HOST).filter(short__in={host.host for host in hosts})
        columns = ("short", "experiment", "stage", "spool_id", "period")
        by_host = own.order_by().values_list(*columns).annotate(**counts)
        for host, experiment, stage, array, period, ended, bad in by_host:
            for name in (_ALL_JOBS, (experiment, stage), array):
                self._by_host[host].add(name, period, ended, bad)

    def failed_shares(self, failing: FailingHost) -> tuple[float, float]:
        """Return the failed share of the jobs of other hosts, and that while the host failed.

        A service outage in that time makes jobs fail on every host. Jobs of some kinds are
        compared with those of the same kinds, weighted as on the host, and those of a single array
        with the rest of it, as the array itself may be at fault.
        """
        if not failing.of_kinds:
            return self._shares(failing, _ALL_JOBS)
        if failing.array:
            return self._shares(failing, failing.array)
        usual = 0.0
        meanwhile = 0.0
        for kind, jobs in failing.jobs_by_kind.items():
            usual_of_kind, meanwhile_of_kind = self._shares(failing, kind)
            usual += usual_of_kind * jobs / failing.ended
            meanwhile += meanwhile_of_kind * jobs / failing.ended
        return usual, meanwhile

    def _shares(self, failing: FailingHost, name: _Name) -> tuple[float, float]:
        ended, failed = self._elsewhere(failing.host, name, self._at - 2 * HOST_WITHIN, self._at)
        if not ended:
            return 1.0, 1.0  # no jobs to compare with
        first_period = failing.first_ended_at - _PERIOD
        ended_meanwhile, failed_meanwhile = self._elsewhere(
            failing.host, name, first_period, failing.last_ended_at
        )
        return max(failed, 1) / (ended + 1), failed_meanwhile / max(ended_meanwhile, 1)

    def _elsewhere(
        self, host: str, name: _Name, since: datetime, until: datetime
    ) -> tuple[int, int]:
        ended, failed = self._on_all_hosts.sums(name, since, until)
        own_ended, own_failed = self._by_host[host].sums(name, since, until)
        return ended - own_ended, failed - own_failed


def select_broken_hosts(failing_hosts: Sequence[FailingHost], *, at: datetime) -> list[FailingHost]:
    """Return the hosts that fail far more of their jobs than the other hosts of their cluster.

    Takes three queries for each cluster.
    """
    hosts_by_cluster: dict[int, list[FailingHost]] = defaultdict(list)
    for failing in failing_hosts:
        hosts_by_cluster[failing.cluster_id].append(failing)
    standing_out = []
    for cluster_id, hosts in hosts_by_cluster.items():
        comparison = _Comparison(cluster_id, hosts, at)
        for failing in hosts:
            if _stands_out(failing, *comparison.failed_shares(failing)):
                standing_out.append(failing)
    return standing_out


def _stands_out(failing: FailingHost, usual: float, meanwhile: float) -> bool:
    share = failing.failed / failing.ended
    is_by_chance = chance_of(failing.ended, share, max(usual, meanwhile)) > HOST_CHANCE
    return share >= HOST_FACTOR * usual and not is_by_chance


def chance_of(jobs: int, share: float, rate: float) -> float:
    """Return an upper bound for the probability that this share or more fails (Chernoff).

    `rate` is the rate at which a single job fails.
    """
    if share <= rate:
        return 1.0
    divergence = share * log(share / rate)
    if share < 1:
        divergence += (1 - share) * log((1 - share) / (1 - rate))
    return exp(-jobs * divergence)


def _period(column: str) -> Func:
    """Return the start of the period in which a time lies."""
    return Func(
        Value(_PERIOD),
        F(column),
        Value(datetime(1970, 1, 1, tzinfo=UTC)),
        function="date_bin",
        output_field=DateTimeField(),
    )
