"""Retries of jobs that the portal did not submit, as their owners.

Only clusters that allow it have them. A retry runs what is in the archive: the script, its
arguments, and the environment without the variables of the scheduler. Each retry has a unique name.
The intent is committed before the job is submitted; after a crash, the portal first looks for a job
of that name.
"""

import logging
from collections.abc import Collection, Iterable, Sequence
from datetime import datetime, timedelta

from django.db import transaction
from django.db.models import QuerySet

from apps.archive.domain.capture_hosts import trusted_hosts
from apps.archive.domain.store.contents import (
    DamagedContent,
    archived_job_for,
    archived_jobs_for,
    read_blob,
)
from apps.archive.models import ArchivedJob
from apps.clusters.domain import adapter_of
from apps.clusters.models import Cluster
from apps.clusters.schedulers.base import (
    JobState,
    OwnedJob,
    SchedulerError,
    SubmissionRefused,
    SubmitsAsOwner,
)
from apps.core.errors import InvalidTransition
from apps.diagnosis.domain.reading.attempts import RESTARTED, note_retries
from apps.diagnosis.domain.reading.job_facts import services_needed_by
from apps.jobs.domain.collection.proof import SKEW
from apps.jobs.models import Job
from apps.production.domain.outlook import Obstacle, Outlook, read_outlook
from apps.production.models import Request
from apps.submission.domain.arrays.changed_resources import ResourceChanges
from apps.submission.domain.debugging.bundle import captured_variables, masked_variables
from apps.submission.domain.dispatch.dispatch import grace_period
from apps.submission.domain.dispatch.excluded_hosts import (
    drop_excluded_hosts,
    with_excluded_hosts,
)
from apps.submission.enums import LeftOut, RetryState
from apps.submission.models import RetryJob

log = logging.getLogger(__name__)

#: How long a scheduler may take to restart a job itself.
RESTART = timedelta(days=1)
#: Tries to submit a job; the next one follows when no command of the last one can still be in
#: progress.
MOST_TRIES = 8
#: Jobs per run and cluster; the next run continues.
MOST_A_RUN = 50


def adapter_for_owners(cluster: Cluster) -> SubmitsAsOwner | None:
    """Return the adapter of a cluster if it may submit as the owners of jobs."""
    try:
        adapter = adapter_of(cluster)
    except SchedulerError:
        return None
    if isinstance(adapter, SubmitsAsOwner) and adapter.submits_as_owner:
        return adapter
    return None


class Foreign:
    """What decides whether jobs that the portal did not submit can be retried.

    It is read for all jobs at once.
    """

    def __init__(self, jobs: Iterable[Job], at: datetime) -> None:
        self.at = at
        clusters = {job.cluster_id: job.cluster for job in jobs}
        allowed = {pk for pk, cluster in clusters.items() if adapter_for_owners(cluster)}
        mine = [job for job in jobs if job.cluster_id in allowed]
        self.allowed = allowed
        self.captured = archived_jobs_for(jobs)
        self.trusted: Collection[str | None] = frozenset()
        self.retries: dict[tuple[int, str], RetryJob] = {}
        if mine:
            self.trusted = trusted_hosts()
            retries = RetryJob.objects.exclude(spool_id="").filter(
                spool_id__in={job.spool_id for job in mine}
            )
            self.retries = {
                (retry.job.cluster_id, retry.spool_id): retry
                for retry in retries.select_related("job")
            }

    def reason(self, job: Job) -> LeftOut | None:
        """Return why a job cannot be submitted again as its owner; None if it can."""
        if JobState(job.state) in RESTARTED and self.at - job.ended_at < RESTART:
            return LeftOut.UNSETTLED
        captured = self.captured.get(job.pk)
        if captured is None or not job.user:
            return LeftOut.NO_SCRIPT
        reason = distrust(captured, self.trusted)
        if job.cluster_id not in self.allowed:
            # Its owner, who knows the script, can submit it from a bundle.
            return LeftOut.NOT_SENT if reason in (None, LeftOut.UNTRUSTED) else reason
        if reason is None and masked_variables(captured):
            return LeftOut.SECRETS
        return reason

    def attempt(self, job: Job) -> int:
        """Return which attempt a job is: 1, or one more than the job that it retried."""
        retry = self.retries.get((job.cluster_id, job.spool_id))
        return retry.attempt if retry else 1


def distrust(captured: ArchivedJob, trusted: Collection[str | None]) -> LeftOut | None:
    """Return why a capture may not be of the owner's job; `trusted` are the trusted senders."""
    if captured.caveat:
        return LeftOut.NO_SCRIPT
    if captured.open_conflict:
        return LeftOut.CONFLICT
    if captured.sender not in trusted:
        return LeftOut.UNTRUSTED
    return None


def obstacles_as_owner(jobs: Sequence[Job], outlook: Outlook) -> dict[int, Obstacle]:
    """Return why jobs should not be submitted as their owners now, by primary key.

    Jobs without an obstacle are left out. As for the arrays of the portal, obstacles are
    announcements, and services that are down and that the stage of the job needs; neither counts
    while the request that the job names ignores advice. The number of queries is constant.
    """
    if not (outlook.advice or outlook.down):
        return {}

    ignoring = jobs_ignoring_advice(jobs, outlook.at)
    needed = services_needed_by(jobs)
    obstacles = {}
    for job in jobs:
        obstacle = outlook.find_obstacle(job.experiment_id, needed[job.pk])
        if obstacle and job.pk not in ignoring:
            obstacles[job.pk] = obstacle
    return obstacles


def jobs_ignoring_advice(jobs: Iterable[Job], at: datetime) -> set[int]:
    """Return the primary keys of the jobs whose request ignores advice.

    A job's owner chooses the request that it names, so only requests of the job's experiment count.
    """
    keys = {job.request_key for job in jobs if job.request_key}
    requests = Request.objects.filter(key__in=keys, ignores_advice_until__gt=at)
    ignoring = set(requests.values_list("key", "experiment_id"))
    return {job.pk for job in jobs if (job.request_key, job.experiment_id) in ignoring}


def submit_owner_retries(*, cluster: Cluster, at: datetime) -> int:
    """Submit released retries of a cluster as their owners, exactly once each; return how many.

    Not in a transaction.

    Retries that should not be submitted now stay released, as planned arrays do. The caller holds
    the lock of the task that submits to the cluster.
    """
    adapter = adapter_for_owners(cluster)
    if adapter is None:
        return 0
    retries = list(to_send(cluster).select_related("job__cluster", "batch").order_by("pk"))
    obstacles = obstacles_as_owner([retry.job for retry in retries], read_outlook(at))
    # A retry that was tried may be in the scheduler, so its name is looked up whatever the advice
    # is.
    retries = [retry for retry in retries if retry.tries or retry.job_id not in obstacles]

    sent = 0
    for retry in retries[:MOST_A_RUN]:
        if retry.sending_at and retry.sending_at + grace_period(cluster) > at:
            continue
        try:
            spool_id = adapter.find_submitted(retry.name) if retry.tries else None
            if spool_id is None and retry.tries >= MOST_TRIES:
                _leave_out(retry, f"it was not accepted in {MOST_TRIES} tries")
                continue
            if spool_id is None:
                if retry.job_id in obstacles:
                    continue
                retry.changes = with_excluded_hosts(retry.changes, cluster, at=at)
                job = owned_job(retry)
                retry.sending_at = at
                retry.tries += 1
                retry.save(update_fields=["sending_at", "tries", "changes"])
                spool_id = _submit(adapter, retry, job)
        except (InvalidTransition, SubmissionRefused) as error:
            _leave_out(retry, str(error))
            continue
        except SchedulerError as error:
            log.warning("%s: %s", retry, error)
            continue
        RetryJob.objects.filter(pk=retry.pk).update(spool_id=spool_id)
        sent += 1
    return sent


def _submit(adapter: SubmitsAsOwner, retry: RetryJob, job: OwnedJob) -> str:
    """Submit a retry, and once more without the excluded hosts if it is refused with them."""
    try:
        return adapter.submit_as_owner(job)
    except SubmissionRefused:
        if not retry.excluded_hosts:
            raise
        retry.changes = drop_excluded_hosts(retry.changes)
        retry.save(update_fields=["changes"])
        return adapter.submit_as_owner(owned_job(retry))


def to_send(cluster: Cluster) -> QuerySet[RetryJob]:
    """Return the released retries of a cluster that have no ID yet."""
    return RetryJob.objects.filter(
        job__cluster=cluster, as_owner=True, state=RetryState.RELEASED, spool_id=""
    )


def _leave_out(retry: RetryJob, why: str) -> None:
    RetryJob.objects.filter(pk=retry.pk).update(state=RetryState.LEFT_OUT, why=why[:500])


def owned_job(retry: RetryJob) -> OwnedJob:
    """Return what to submit. Raises `InvalidTransition` if the archive does not have it whole."""
    job = retry.job
    captured = archived_job_for(job)
    if captured is None:
        raise InvalidTransition(LeftOut.NO_SCRIPT.label)
    if reason := distrust(captured, trusted_hosts()):
        raise InvalidTransition(reason.label)
    try:
        script = read_blob(captured.script)
        environment = read_blob(captured.environment)
    except DamagedContent as error:
        raise InvalidTransition(f"the archived content {error}") from error
    variables, masked = captured_variables(environment)
    if masked:
        raise InvalidTransition(f"secrets are not archived: {', '.join(masked)}")
    _, _, task = job.job_id.partition("_")
    changes = ResourceChanges.read(retry.changes)
    return OwnedJob(
        name=retry.name,
        owner=job.user,
        first_id=job.spool_id,
        script=script,
        environment=b"".join(name + b"=" + value + b"\0" for name, value in variables),
        arguments=tuple(captured.arguments.split()),  # as accounting has them: words without quotes
        task=int(task) if task.isdigit() else None,
        time_limit_seconds=changes.time_limit_seconds or job.time_limit_seconds or 0,
        memory_bytes=changes.memory_bytes or job.requested_memory_bytes or 0,
        avoided_hosts=tuple(dict.fromkeys([*changes.avoided_hosts, *retry.excluded_hosts])),
        account=job.account,
        partition=job.partition,
        directory=job.work_dir,
    )


@transaction.atomic
def record_owner_retries(*, cluster: Cluster) -> int:
    """Record the outcome of finished retries on verdicts; return how many changed."""
    rows = RetryJob.objects.filter(
        job__cluster=cluster, as_owner=True, state=RetryState.RELEASED
    ).exclude(spool_id="")
    waiting = {retry.spool_id: retry for retry in rows.select_related("job")}
    jobs = Job.objects.filter(cluster=cluster, spool_id__in=waiting).exclude(
        state=JobState.REQUEUED
    )
    retries = {}
    for job in jobs.order_by("attempt"):
        retry = waiting[job.spool_id]
        if retry.sending_at and job.submitted_at >= retry.sending_at - SKEW:
            retries[retry.job_id] = job
    if not retries:
        return 0
    return note_retries(retries=retries)
