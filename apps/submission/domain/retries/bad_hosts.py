"""Hosts on which the failures of a batch of retries are concentrated, so that its retries can avoid
them.

A host is proposed if many of the jobs failed there, and if its jobs fail far more often than those
on other hosts of its cluster. The rates come from the statistics, not from jobs.
"""

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from apps.accounts.models import User
from apps.clusters.models import Cluster
from apps.core.errors import InvalidFields
from apps.diagnosis.domain.groups.broken_hosts import HOST_FACTOR, chance_of
from apps.hosts.domain.exclusions import open_exclusions
from apps.hosts.domain.known_hosts import full_name, known_hosts
from apps.jobs.domain.records.jobs import short_host
from apps.jobs.domain.statistics.questions import MEASURES, Question, whole_hours
from apps.jobs.models import Job
from apps.submission.domain.arrays.changed_resources import ResourceChanges
from apps.submission.domain.retries.eligibility import RetryCandidate

#: To propose a host: minimum number of jobs to retry that failed there, their minimum share of the
#: jobs to retry on the cluster, and the maximum probability of its failures at the rate of the
#: other hosts.
LEAST_JOBS = 3
LEAST_SHARE = 0.2
MOST_CHANCE = 1e-3
#: Maximum number of hosts to propose. If more fail, the cause lies elsewhere.
MOST_PROPOSED = 3
#: The rates are counted over this time before the newest failure of the batch.
WITHIN = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class BadHost:
    """A host that retries of a batch should avoid, by its short name.

    `failed` of the `jobs` to retry on its cluster failed there. `elsewhere` is the share of jobs
    that failed on the other hosts of the cluster, 0 to 1.
    """

    cluster: Cluster
    host: str
    failed: int
    jobs: int
    elsewhere: float

    @property
    def label(self) -> str:
        """Return the text of its tick box."""
        return (
            f"Exclude {self.host} ({self.failed:,} of these {self.jobs:,} failed there; "
            f"{self.elsewhere:.0%} elsewhere)"
        ).replace("%", " %")


def find_bad_hosts(
    candidates: Sequence[RetryCandidate], *, user: User, at: datetime
) -> list[BadHost]:
    """Return the hosts to propose, those with most failures first.

    Without a host that has enough of the failures, it takes no query; else few. Hosts that are
    excluded from all new jobs are left out: no retry runs there.
    """
    jobs = [candidate.verdict.job for candidate in candidates]
    on_cluster = Counter(job.cluster_id for job in jobs)
    on_host = Counter((job.cluster_id, short_host(job.host)) for job in jobs if job.host)
    suspects = {}
    for (cluster, host), failed in on_host.most_common():
        if failed >= LEAST_JOBS and failed >= LEAST_SHARE * on_cluster[cluster]:
            suspects[cluster, host] = failed
    if not suspects:
        return []

    clusters = {job.cluster_id: job.cluster for job in jobs}
    excluded = set(open_exclusions(at).values_list("cluster", "host"))
    rates = _Rates(jobs, suspects, user)
    bad_hosts = []
    for (cluster, host), failed in suspects.items():
        elsewhere = rates.elsewhere(clusters[cluster].name, host)
        if elsewhere is not None and (cluster, host) not in excluded:
            bad_hosts.append(
                BadHost(clusters[cluster], host, failed, on_cluster[cluster], elsewhere)
            )
    return bad_hosts[:MOST_PROPOSED]


class _Rates:
    """How many jobs ended and failed on suspect hosts and on their clusters."""

    def __init__(
        self, jobs: Sequence[Job], suspects: Collection[tuple[int, str]], user: User
    ) -> None:
        from apps.jobs.domain.statistics.explorer import Explorer

        of_suspects = [job for job in jobs if (job.cluster_id, short_host(job.host)) in suspects]
        newest = max(job.ended_at for job in of_suspects)
        since, until = whole_hours(newest - WITHIN, newest)
        clusters = tuple({job.cluster.name for job in of_suspects})
        # Schedulers name a host with or without its domain.
        names = {job.host for job in of_suspects}
        names |= {short_host(name) for name in names}
        explorer = Explorer(user)

        by_cluster = Question(
            MEASURES["failures"], ("cluster",), since, until, {"cluster": clusters}
        )
        self._clusters = {}
        for row in explorer.answer(by_cluster, limit=len(clusters), compare=False).rows:
            self._clusters[row.key["cluster"]] = (row.jobs, row.failed)

        of_hosts = {"cluster": clusters, "host": tuple(names)}
        by_host = Question(MEASURES["failures"], ("cluster", "host"), since, until, of_hosts)
        self._hosts: Counter[tuple[str, str]] = Counter()
        self._failed: Counter[tuple[str, str]] = Counter()
        limit = len(clusters) * len(names)
        for row in explorer.answer(by_host, limit=limit, compare=False).rows:
            place = (row.key["cluster"], short_host(row.key["host"]))
            self._hosts[place] += row.jobs
            self._failed[place] += row.failed

    def elsewhere(self, cluster: str, host: str) -> float | None:
        """Return the share of jobs that failed on other hosts; None if the host is not worse."""
        jobs = self._hosts[cluster, host]
        failed = self._failed[cluster, host]
        all_jobs, all_failed = self._clusters.get(cluster, (0, 0))
        if not jobs or all_jobs <= jobs:
            return None  # not counted yet, or no other host to compare with
        elsewhere = (all_failed - failed) / (all_jobs - jobs)
        # One failure more, so that a few jobs without a failure are no proof.
        at_most = (all_failed - failed + 1) / (all_jobs - jobs + 1)
        share = failed / jobs
        is_by_chance = chance_of(jobs, share, at_most) > MOST_CHANCE
        return None if is_by_chance or share < HOST_FACTOR * elsewhere else elsewhere


def changes_avoiding(
    hosts: Collection[str], candidates: Sequence[RetryCandidate], *, at: datetime
) -> dict[int, ResourceChanges]:
    """Return the changes of the retries of jobs, by primary key, that avoid these hosts.

    Only jobs of clusters on which a job failed on such a host have some, as schedulers refuse jobs
    that name an unknown host. Raises `InvalidFields` if no job failed on one of the hosts, or if
    a cluster would have no other host.
    """
    short_names = {short_host(host.strip()) for host in hosts}
    on_cluster: dict[Cluster, set[str]] = {}
    for candidate in candidates:
        host = short_host(candidate.verdict.job.host)
        if host in short_names:
            on_cluster.setdefault(candidate.verdict.job.cluster, set()).add(host)

    unknown = short_names.difference(*on_cluster.values())
    if unknown:
        raise InvalidFields({"avoid_hosts": [f"No job to retry failed on {min(unknown)[:255]}."]})

    changes = {}
    for cluster, avoided in on_cluster.items():
        if avoided.issuperset(known_hosts(cluster, at=at)):
            raise InvalidFields({"avoid_hosts": [f"{cluster} has no other host."]})
        names = sorted(full_name(cluster, host, at=at) for host in avoided)
        changes[cluster.pk] = ResourceChanges(avoided_hosts=tuple(names))
    changes_of_job = {}
    for candidate in candidates:
        job = candidate.verdict.job
        if job.cluster_id in changes:
            changes_of_job[job.pk] = changes[job.cluster_id]
    return changes_of_job
