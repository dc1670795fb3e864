"""Plan probe jobs, submit them, and give up on those that do not report.

A probe job is submitted exactly once: its row is claimed first, and a row whose worker was killed
is looked up in the scheduler by its name before it is submitted again.
"""

import logging
import math
import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import UTC, datetime, timedelta

from django.conf import settings
from django.db import transaction
from django.db.models import Max, Q, QuerySet

from apps.clusters.domain import adapter_of
from apps.clusters.models import Cluster
from apps.clusters.schedulers.base import (
    BatchJob,
    SchedulerError,
    SubmissionRefused,
    Submits,
)
from apps.clusters.schedulers.options import read_options
from apps.core.domain.work import BackOff, Queue
from apps.hosts.domain.exclusions import open_exclusions
from apps.hosts.domain.known_hosts import (
    full_name,
    hosts_of_jobs,
    is_host_name,
    listed_hosts,
)
from apps.hosts.domain.probes.results import end_probe_job, has_faults, store_missing_results
from apps.hosts.domain.probes.scripts import write_probe_script
from apps.hosts.domain.probes.tokens import new_probe_token
from apps.hosts.enums import ProbeState
from apps.hosts.models import HostExclusion, Probe, ProbeJob
from apps.jobs.enums import PROBE_JOB_PREFIX

log = logging.getLogger(__name__)

#: Advisory lock of a cluster, held while probe jobs are submitted to it.
PROBING_LOCK = 4_716_047
#: How often probe jobs are planned, by the schedule of `hosts.probe`.
PLANNED_EVERY = timedelta(seconds=30)
#: Probe jobs of a cluster, on hosts that are not excluded, that wait or run at once.
MOST_SURVEYS_AT_ONCE = 50
#: Submissions of one run; the next one continues.
MOST_A_RUN = 100
#: How long a probe job may wait in the queue before it starts.
PATIENCE = timedelta(minutes=10)
#: How long finished probe jobs are kept.
KEPT = timedelta(days=14)
_MEMORY_BYTES = 256 * 2**20
#: What the job does besides its probes: start, write files, report.
_MARGIN_SECONDS = 60
_LONG_AGO = datetime(1970, 1, 1, tzinfo=UTC)

#: The lease is longer than any command of a scheduler, and so is the wait after one that failed:
#: its job may appear until then.
PROBE_JOBS = Queue(
    name="probes",
    title="Probe jobs",
    model=ProbeJob,
    unfinished_rows=Q(state=ProbeState.PLANNED),
    back_off=BackOff((300,)),
    lease=timedelta(minutes=5),
)


def plan_probe_jobs(*, at: datetime) -> int:
    """Plan the probe jobs that are due, on excluded hosts and on all; return how many.

    Excluded hosts are probed every HOST_PROBE_MINUTES, the others every HOST_PROBE_HOURS, spread
    over that time. Two workers at once plan no job twice.
    """
    active_probes = list(_active_probes())
    planned = 0
    for cluster in Cluster.objects.filter(submits=True).order_by("pk"):
        names = _names_on(cluster, active_probes)
        if names:
            planned += _plan_on_cluster(cluster, names, at)
    return planned


def plan_on_hosts(cluster: Cluster, hosts: Collection[str], *, at: datetime) -> int:
    """Plan a probe job on each of these hosts that has none which is not finished.

    Returns how many were planned at most; none where no probe runs.
    """
    names = _names_on(cluster, list(_active_probes()))
    if not names:
        return 0
    jobs = []
    for host in sorted(filter(is_host_name, hosts)):
        jobs.append(_planned_job(cluster, host, names, at, None))
    ProbeJob.objects.bulk_create(jobs, ignore_conflicts=True)
    return len(jobs)


def _active_probes() -> QuerySet[Probe]:
    return Probe.objects.filter(active=True).prefetch_related("clusters")


def _names_on(cluster: Cluster, active_probes: Sequence[Probe]) -> list[str]:
    """Return the names of the probes that run on a cluster."""
    names = []
    for probe in active_probes:
        clusters = probe.clusters.all()
        if not clusters or cluster in clusters:
            names.append(probe.name)
    return names


def _plan_on_cluster(cluster: Cluster, probe_names: Sequence[str], at: datetime) -> int:
    exclusions = {
        exclusion.host: exclusion for exclusion in open_exclusions(at).filter(cluster=cluster)
    }
    hosts = set(listed_hosts(cluster, at=at)) or hosts_of_jobs(cluster, at=at) | exclusions.keys()
    hosts = {host for host in hosts if is_host_name(host)}
    unfinished = ProbeJob.objects.filter(cluster=cluster, ended_at=None)
    busy_hosts = set(unfinished.values_list("host", flat=True))
    newest = _newest_by_host(cluster, at)

    jobs = []
    for host in _due_excluded(exclusions.keys() & hosts - busy_hosts, newest, at):
        jobs.append(_planned_job(cluster, host, probe_names, at, exclusions[host]))
    room = MOST_SURVEYS_AT_ONCE - unfinished.filter(exclusion=None).count()
    for host in _due_others(hosts - exclusions.keys(), busy_hosts, newest, at)[: max(room, 0)]:
        jobs.append(_planned_job(cluster, host, probe_names, at, None))
    # Another worker may have planned the same: there is one unfinished job a host.
    ProbeJob.objects.bulk_create(jobs, ignore_conflicts=True)
    return len(jobs)


def _newest_by_host(cluster: Cluster, at: datetime) -> dict[str, datetime]:
    """Return when the newest probe job of each host was planned, as far as it matters."""
    oldest = at - timedelta(hours=settings.HOST_PROBE_HOURS, minutes=settings.HOST_PROBE_MINUTES)
    jobs = ProbeJob.objects.filter(cluster=cluster, planned_at__gt=oldest).order_by()
    return dict(jobs.values_list("host").annotate(Max("planned_at")))


def _due_excluded(
    hosts: Collection[str], newest: Mapping[str, datetime], at: datetime
) -> list[str]:
    due_before = at - timedelta(minutes=settings.HOST_PROBE_MINUTES)
    return sorted(host for host in hosts if newest.get(host, _LONG_AGO) <= due_before)


def _due_others(
    hosts: Collection[str],
    busy_hosts: Collection[str],
    newest: Mapping[str, datetime],
    at: datetime,
) -> list[str]:
    """Return the hosts to probe now, those first that were not probed for longest.

    No more than the share of one run, so that they do not all come at once.
    """
    if not settings.HOST_PROBE_HOURS:
        return []
    due_before = at - timedelta(hours=settings.HOST_PROBE_HOURS)
    due = []
    for host in hosts:
        last = newest.get(host, _LONG_AGO)
        if last <= due_before and host not in busy_hosts:
            due.append((last, host))
    runs = timedelta(hours=settings.HOST_PROBE_HOURS) / PLANNED_EVERY
    share = math.ceil(len(hosts) / runs)
    return [host for _, host in sorted(due)[:share]]


def _planned_job(
    cluster: Cluster,
    host: str,
    probe_names: Sequence[str],
    at: datetime,
    exclusion: HostExclusion | None,
) -> ProbeJob:
    return ProbeJob(
        cluster=cluster,
        host=host,
        name=f"{PROBE_JOB_PREFIX}{uuid.uuid4().hex[:16]}",
        asked=list(probe_names),
        exclusion=exclusion,
        planned_at=at,
        due_at=at,
    )


def clusters_with_probe_jobs() -> QuerySet[Cluster]:
    """Return the clusters with probe jobs that have not ended."""
    return Cluster.objects.filter(
        pk__in=ProbeJob.objects.filter(ended_at=None).values("cluster")
    ).order_by("pk")


def send_probe_jobs(*, cluster: Cluster, now: Callable[[], datetime]) -> int:
    """Submit the planned probe jobs of a cluster; return how many were submitted or refused.

    Ends with the first that the scheduler gives no clear answer to: the next run continues. Two
    workers must not do this for a cluster at once.
    """
    done = 0
    while done < MOST_A_RUN:
        at = now()
        due = PROBE_JOBS.due(at).filter(cluster=cluster).select_related("cluster")
        claimed = PROBE_JOBS.claim(due[:1], at=at)
        if not claimed or not _send(claimed[0], at):
            break
        done += 1
    return done


def _send(job: ProbeJob, at: datetime) -> bool:
    """Submit a claimed job, unless the scheduler has it; False if it is tried again later."""
    try:
        adapter = adapter_of(job.cluster)
        if not isinstance(adapter, Submits):
            raise SchedulerError(f"Jobs cannot be submitted to {job.cluster}.")
        spool_id = None
        if job.attempts > 1:
            spool_id = adapter.find_submitted(job.name)
        if spool_id is None:
            spool_id = adapter.submit(_batch_job(job, at))
    except SubmissionRefused as error:
        return _store_refusal(job, str(error), at)
    except Exception as error:  # an adapter may raise anything: the scheduler is asked later
        log.warning("probe job %s: %s", job, error)
        PROBE_JOBS.fail(job, str(error).replace("\0", ""), at=at)
        return False
    return _store_submission(job, spool_id, at)


@transaction.atomic
def _store_submission(job: ProbeJob, spool_id: str, at: datetime) -> bool:
    if not PROBE_JOBS.hold([job]):
        return False
    job.state = ProbeState.SENT
    job.spool_id = spool_id
    job.sent_at = at
    job.last_error = ""
    job.save(update_fields=["state", "spool_id", "sent_at", "last_error"])
    return True


@transaction.atomic
def _store_refusal(job: ProbeJob, error: str, at: datetime) -> bool:
    if not PROBE_JOBS.hold([job]):
        return False
    job.last_error = error.replace("\0", "")[:2000]
    end_probe_job(job, ProbeState.REFUSED, good=False, at=at)
    return True


def _batch_job(job: ProbeJob, at: datetime) -> BatchJob:
    """Return the job as it is submitted. Raises `ValueError` for invalid options of the cluster."""
    probes = list(Probe.objects.filter(name__in=job.asked))
    options = read_options(job.cluster.submission)
    time_limit_seconds = _time_limit_seconds(probes)
    return BatchJob(
        name=job.name,
        script=write_probe_script(probes),
        tasks=1,
        time_limit_seconds=time_limit_seconds,
        memory_bytes=_MEMORY_BYTES,
        environment={
            "OPSPORTAL_PROBES": " ".join(probe.name for probe in probes),
            "OPSPORTAL_URL": settings.PORTAL_URL,
            "OPSPORTAL_PHASE_TOKEN": new_probe_token(job),
        },
        comment="opsportal:probe",
        account=options.account,
        partition=options.partition,
        qos=options.qos,
        directory=options.directory,
        output="/dev/null",  # the results come by `ops-phase`
        host=full_name(job.cluster, job.host, at=at),
        deadline_seconds=int(PATIENCE.total_seconds()) + time_limit_seconds,
    )


def _time_limit_seconds(probes: Collection[Probe]) -> int:
    return _MARGIN_SECONDS + sum(probe.timeout_seconds + 5 for probe in probes)


def give_up_on_probe_jobs(*, cluster: Cluster, at: datetime) -> int:
    """End the probe jobs of a cluster that did not report in time, as lost; return how many.

    Two workers must not do this for a cluster, or submit to it, at once.
    """
    planned_before = at - PATIENCE
    overdue = ProbeJob.objects.filter(cluster=cluster, ended_at=None).filter(
        Q(state=ProbeState.PLANNED, planned_at__lte=planned_before, due_at__lte=at)
        | Q(state=ProbeState.SENT, sent_at__lte=planned_before)
    )
    lost = 0
    answers = True
    for job in overdue.select_related("cluster").order_by("planned_at")[:MOST_A_RUN]:
        probes = list(Probe.objects.filter(name__in=job.asked))
        runs_at_most = timedelta(seconds=_time_limit_seconds(probes))
        if job.sent_at is not None and job.sent_at > at - PATIENCE - runs_at_most:
            continue
        if job.spool_id and answers:
            answers = _cancel(job)
        lost += _store_loss(job, at)
    return lost


def _cancel(job: ProbeJob) -> bool:
    """Cancel a job that waits or hangs; False without an answer: then its deadline ends it."""
    try:
        adapter = adapter_of(job.cluster)
        if isinstance(adapter, Submits):
            adapter.cancel(job.spool_id)
    except Exception as error:
        log.warning("probe job %s was not cancelled: %s", job, error)
        return False
    return True


@transaction.atomic
def _store_loss(job: ProbeJob, at: datetime) -> bool:
    current = (
        ProbeJob.objects.select_for_update(of=("self",))
        .select_related("cluster", "exclusion")
        .get(pk=job.pk)
    )
    is_unchanged = (current.state, current.attempts) == (job.state, job.attempts)
    if current.ended_at is not None or not is_unchanged:
        return False
    # Without any result nothing is known of the services: the host or the network is at fault.
    has_reported = store_missing_results(current, at=at)
    good = has_reported and not has_faults(current)
    end_probe_job(current, ProbeState.LOST, good=good, at=at)
    return True


def forget_probe_jobs(*, at: datetime) -> int:
    """Delete probe jobs that ended longer ago than `KEPT`; return how many rows that took."""
    deleted, _ = ProbeJob.objects.filter(ended_at__lt=at - KEPT).delete()
    return deleted
