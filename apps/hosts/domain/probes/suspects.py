"""Probe hosts on which the last jobs failed, to find out whether the host is at fault.

Two failures prove little, and more failures take long on a host with few slots. So such a host is
probed at once, along with hosts that complete their jobs. If only its probes are bad, the host is
at fault; in an outage, the probes of all hosts are bad.
"""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence, Set
from datetime import datetime, timedelta

from django.conf import settings

from apps.clusters.models import Cluster
from apps.clusters.schedulers.base import JobState
from apps.diagnosis.domain.groups.broken_hosts import SUSPECT_WITHIN, FailingHost
from apps.hosts.domain.probes.probe_jobs import plan_on_hosts
from apps.hosts.enums import ProbeState
from apps.hosts.models import ProbeJob, ProbeResult
from apps.jobs.enums import PROBE_JOB_PREFIX
from apps.jobs.models import SHORT_HOST, Job

#: Minimum number of bad probe jobs in a row that prove a suspect to be at fault.
BAD_IN_A_ROW = 2
#: Number of failed jobs from which a single bad probe job is proof enough.
FAILURES_FOR_ONE_BAD = 3
#: Number of probe jobs that follow each other directly; later ones come every HOST_PROBE_MINUTES.
PROBED_AT_ONCE = 4
#: Number of hosts that complete their jobs to probe beside the suspects. At least `GOOD_OTHERS` of
#: them must report good probes.
COMPARED_HOSTS = 5
GOOD_OTHERS = 2
#: The newest completed jobs of a cluster include jobs of other hosts.
_NEWEST_JOBS = 100


def probe_suspects(
    cluster: Cluster,
    suspects: Sequence[FailingHost],
    hosts: Set[str],
    *,
    most: int,
    at: datetime,
) -> int:
    """Plan probe jobs on the `most` suspects with most failures, and beside them on other hosts.

    `hosts` are the hosts of the cluster that may be probed. Returns how many jobs were planned.
    """
    worst_first = sorted(suspects, key=lambda suspect: (-suspect.failed, suspect.host))
    probed = [suspect for suspect in worst_first if suspect.host in hosts][:most]
    jobs_by_host = _probe_jobs(cluster, probed)
    due = set()
    for suspect in probed:
        if _is_due(jobs_by_host[suspect.host], suspect.first_ended_at, at):
            due.add(suspect.host)
    if not due:
        return 0
    others = hosts - {suspect.host for suspect in suspects}
    return plan_on_hosts(cluster, due | _hosts_that_complete(cluster, others, at), at=at)


def _probe_jobs(cluster: Cluster, suspects: Sequence[FailingHost]) -> Mapping[str, list[ProbeJob]]:
    """Return the probe jobs since the first failure of a suspect, newest first, by host."""
    jobs_by_host: dict[str, list[ProbeJob]] = defaultdict(list)
    if not suspects:
        return jobs_by_host
    since = min(suspect.first_ended_at for suspect in suspects)
    jobs = ProbeJob.objects.filter(cluster=cluster, planned_at__gte=since)
    for job in jobs.order_by("-planned_at", "-pk"):
        jobs_by_host[job.host].append(job)
    return jobs_by_host


def _is_due(jobs: Sequence[ProbeJob], first_failed_at: datetime, at: datetime) -> bool:
    jobs = [job for job in jobs if job.planned_at >= first_failed_at]
    if not jobs:
        return True
    newest = jobs[0]
    if newest.ended_at is None:
        return False
    if len(jobs) < PROBED_AT_ONCE:
        return True
    return newest.planned_at <= at - timedelta(minutes=settings.HOST_PROBE_MINUTES)


def _hosts_that_complete(cluster: Cluster, hosts: Collection[str], at: datetime) -> set[str]:
    """Return the hosts that completed a job last: they work, and have just had a free slot."""
    completed = Job.objects.filter(
        cluster=cluster,
        state=JobState.COMPLETED,
        ended_at__gt=at - SUSPECT_WITHIN,
        ended_at__lte=at,
    ).exclude(name__startswith=PROBE_JOB_PREFIX)
    newest = completed.order_by("-ended_at", "-pk").values_list(SHORT_HOST, flat=True)
    compared: set[str] = set()
    for host in newest[:_NEWEST_JOBS]:
        if host in hosts and len(compared) < COMPARED_HOSTS:
            compared.add(host)
    return compared


class _OtherHosts:
    """The probe jobs of the hosts that are neither suspects nor excluded."""

    def __init__(
        self, jobs_by_host: Mapping[str, Sequence[ProbeJob]], suspected: Collection[str]
    ) -> None:
        self._jobs = []
        for host, jobs in jobs_by_host.items():
            for job in jobs:
                if host not in suspected and job.exclusion_id is None:
                    self._jobs.append(job)

    def are_good(self, since: datetime, until: datetime) -> bool:
        """Return whether those that reported in [since, until) were good, on several hosts."""
        good_hosts = set()
        for job in self._jobs:
            if job.state != ProbeState.ENDED or job.ended_at is None:
                continue
            if not since <= job.ended_at < until:
                continue
            if not job.good:
                return False
            good_hosts.add(job.host)
        return len(good_hosts) >= GOOD_OTHERS


def bad_by_probes(
    cluster: Cluster, suspects: Sequence[FailingHost], *, at: datetime
) -> list[tuple[FailingHost, list[str]]]:
    """Return the suspects that their probes prove to be at fault, with the names of these probes.

    The last probe jobs of such a host were bad. Meanwhile the probe jobs of other hosts were good,
    and none was bad, so that it is no outage, also none that has just begun or ended. Takes two
    queries.
    """
    jobs_by_host = _probe_jobs(cluster, suspects)
    suspected = {suspect.host for suspect in suspects}
    others = _OtherHosts(jobs_by_host, suspected)
    bad_hosts = []
    for suspect in suspects:
        bad = _last_bad_jobs(suspect, jobs_by_host[suspect.host])
        if bad and _is_at_fault(suspect, bad, others, at):
            bad_hosts.append((suspect, bad[0]))
    if not bad_hosts:
        return []

    newest_jobs = [job for _, job in bad_hosts]
    results = ProbeResult.objects.filter(job__in=newest_jobs, good=False, excused=False)
    names_by_job: dict[int, list[str]] = defaultdict(list)
    for job_id, name in results.order_by("probe__name").values_list("job_id", "probe__name"):
        names_by_job[job_id].append(name)
    return [(suspect, names_by_job[job.pk]) for suspect, job in bad_hosts]


def _last_bad_jobs(suspect: FailingHost, jobs: Sequence[ProbeJob]) -> list[ProbeJob]:
    """Return the probe jobs since the first failure that were bad without a good one after them.

    The newest is first. One that did not report says nothing: it may have waited for a free slot.
    """
    bad = []
    for job in jobs:
        if job.planned_at < suspect.first_ended_at or job.good:
            break
        if job.state == ProbeState.ENDED:
            bad.append(job)
    return bad


def _is_at_fault(
    suspect: FailingHost, bad: Sequence[ProbeJob], others: _OtherHosts, at: datetime
) -> bool:
    """Return whether other hosts were good between bad probe jobs, or before and after one.

    One is enough only after several failures.
    """
    first = bad[-1].ended_at or at
    last = bad[0].ended_at or at
    if len(bad) >= BAD_IN_A_ROW and others.are_good(first, last):
        return True
    is_failing = suspect.failed >= FAILURES_FOR_ONE_BAD
    return is_failing and (
        others.are_good(suspect.first_ended_at, first) and others.are_good(first, at)
    )
