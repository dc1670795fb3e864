"""Release batches of retries step by step, and count their outcomes."""

import logging
from collections import defaultdict
from collections.abc import Collection, Iterator
from datetime import datetime, timedelta

from django.db import transaction
from django.db.models import Q

from apps.clusters.models import Cluster
from apps.clusters.schedulers.base import JobState, SchedulerError
from apps.core.domain.background import enqueue
from apps.core.domain.work import BackOff, Queue
from apps.core.domain.workflow import move
from apps.core.errors import InvalidFields, InvalidTransition, StaleState
from apps.diagnosis.domain.groups.triage import change_status
from apps.diagnosis.enums import GroupStatus
from apps.diagnosis.models import Verdict
from apps.production.domain.outlook import read_outlook
from apps.production.enums import CLOSED, PORTAL
from apps.production.models import Request
from apps.submission.domain.arrays.changed_resources import ResourceChanges
from apps.submission.domain.arrays.plan import lock_request, plan_retry
from apps.submission.domain.arrays.rows import options_of
from apps.submission.domain.retries.batches import counts_of, publish_batch_event
from apps.submission.domain.retries.eligibility import DryRun, RetryCandidate, RetryLimits, examine
from apps.submission.domain.retries.links import count_alike
from apps.submission.domain.retries.obstacles import find_obstacles
from apps.submission.enums import BATCH_MOVES, BatchState, LeftOut, RetryState, SubmissionState
from apps.submission.models import RetryBatch, RetryJob, Submission

log = logging.getLogger(__name__)

#: A batch stops if more than this share of its finished retries failed alike: what failed them
#: would fail the next ones too, while a few unrelated failures are usual at a site.
STOP_ALIKE_SHARE = 0.1
#: A batch also stops if more than this share of its finished retries failed, whatever the causes.
STOP_ANY_SHARE = 0.5
#: Finished retries from which these rules may stop a batch.
STOP_FROM = 10
#: A batch stops earlier if this share of its retries failed again, once `STOP_EARLY_FROM` finished.
STOP_EARLY_SHARE = 0.8
STOP_EARLY_FROM = 5


#: The batches with jobs to release or to count.
BATCHES = Queue(
    name="retry_batches",
    title="Retry batches",
    model=RetryBatch,
    unfinished_rows=Q(state__in=[BatchState.RELEASING, BatchState.RELEASED])
    | Q(pk__in=RetryJob.objects.filter(state=RetryState.RELEASED).values("batch")),
    back_off=BackOff((15, 60, 300, 900)),
)


def fails_again(*, failed: int, alike: int, ended: int) -> bool:
    """Return whether so many finished retries of a batch failed again that it stops.

    Of the `failed` ones, `alike` have the most common cause.
    """
    if ended >= STOP_FROM and alike > STOP_ALIKE_SHARE * ended:
        return True
    if ended >= STOP_FROM and failed > STOP_ANY_SHARE * ended:
        return True
    return ended >= STOP_EARLY_FROM and failed >= STOP_EARLY_SHARE * ended


def advance_batch(*, batch: RetryBatch, at: datetime) -> int:
    """Count finished retries of a batch, release its next step if it is due, and return its size.

    A step is one transaction. Jobs whose service is down, or which should not be submitted now,
    wait for a later step. A step that fails is recorded and tried again.
    """
    released = 0

    def advance(claimed: RetryBatch) -> None:
        nonlocal released
        released = _advance(claimed, at)

    BATCHES.process(BATCHES.unfinished().filter(pk=batch.pk), advance, at=at)
    return released


def _advance(batch: RetryBatch, at: datetime) -> int:
    counts = _count(batch)

    failed = counts.get(RetryState.FAILED, 0)
    ended = failed + counts.get(RetryState.SUCCEEDED, 0)
    may_stop = batch.state == BatchState.RELEASING and batch.stops and failed > 0
    if may_stop and fails_again(failed=failed, alike=count_alike(batch), ended=ended):
        move(batch, to=BatchState.STOPPED, transitions=BATCH_MOVES)
        publish_batch_event("retry.stopped", batch, by=PORTAL, at=at, failed=failed)

    released = 0
    is_due = (
        batch.released_at is None
        or batch.released_at + timedelta(minutes=batch.pause_minutes) <= at
    )
    if batch.state == BatchState.RELEASING and is_due:
        released = _release(batch, at)
        counts = counts_of(batch)

    if batch.state == BatchState.RELEASING and not counts.get(RetryState.WAITING):
        move(batch, to=BatchState.RELEASED, transitions=BATCH_MOVES)
        _mark_group(batch, at)
    if batch.state == BatchState.RELEASED and not counts.get(RetryState.RELEASED):
        move(batch, to=BatchState.FINISHED, transitions=BATCH_MOVES, ended_at=at)
        succeeded = counts.get(RetryState.SUCCEEDED, 0)
        jobs = succeeded + counts.get(RetryState.FAILED, 0)
        publish_batch_event(
            "retry.finished", batch, by=PORTAL, at=at, succeeded=succeeded, jobs=jobs
        )
    batch.due_at = at
    batch.attempts = 0
    batch.last_error = ""
    batch.save(update_fields=["due_at", "attempts", "last_error"])
    return released


def _count(batch: RetryBatch) -> dict[str, int]:
    """Record the outcome of released jobs by their verdicts; return the number of jobs by state.

    Jobs of closed requests whose retry was not submitted are left out, because it never will be.
    """
    released = RetryJob.objects.filter(batch=batch, state=RetryState.RELEASED)
    ended = released.exclude(job__verdict__later_state="")
    ended.filter(job__verdict__later_state=JobState.COMPLETED).update(state=RetryState.SUCCEEDED)
    ended.exclude(job__verdict__later_state=JobState.COMPLETED).update(state=RetryState.FAILED)

    unsent = [SubmissionState.PLANNED, SubmissionState.FAILED]
    never = released.filter(submission__state__in=unsent, submission__request__state__in=CLOSED)
    never.update(state=RetryState.LEFT_OUT, why="its request was closed before it was submitted")
    return counts_of(batch)


def _release(batch: RetryBatch, at: datetime) -> int:
    """Plan the arrays of the next step.

    Jobs that can no longer be retried are left out, with the reason.
    """
    waiting = list(batch.jobs.filter(state=RetryState.WAITING).values_list("job__pk", flat=True))
    verdicts = Verdict.objects.filter(job__in=waiting).select_related("job__cluster", "experiment")
    moving_jobs = _moving_jobs(batch)
    dry_run = examine(
        list(verdicts.order_by("ended_at", "pk")),
        limits=RetryLimits(),
        at=at,
        batch=batch,
        moving_jobs=moving_jobs,
    )
    _leave_out(
        batch, set(waiting) - {verdict.job_id for verdict in verdicts}, "no verdict any more"
    )
    for reason, left_out in dry_run.left_out.items():
        _leave_out(batch, [verdict.job_id for verdict in left_out], LeftOut(reason).label)
    _leave_out_overridden(batch, dry_run)

    obstacles = find_obstacles(dry_run.eligible, read_outlook(at), moving_jobs=moving_jobs)
    by_request: dict[Request, list[RetryCandidate]] = defaultdict(list)
    owned: list[RetryCandidate] = []
    for candidate in dry_run.eligible:
        if candidate.verdict.job_id in obstacles:
            continue
        if candidate.submission is None:
            owned.append(candidate)
        else:
            by_request[candidate.submission.request].append(candidate)

    left = batch.step
    # All processes lock requests in the same order, so that they cannot block each other.
    for request in sorted(by_request, key=lambda request: request.pk):
        if left:
            candidates = by_request[request][:left]
            left -= _release_request(batch, request, candidates, moving_jobs, at=at)
    owned_ids = [candidate.verdict.job_id for candidate in owned[:left]]
    jobs = batch.jobs.filter(job__in=owned_ids, state=RetryState.WAITING)
    left -= jobs.update(state=RetryState.RELEASED, released_at=at)

    if left < batch.step:
        batch.released_at = at
        batch.save(update_fields=["released_at"])
        enqueue("submission.send_all")
    return batch.step - left


def _release_request(
    batch: RetryBatch,
    request: Request,
    candidates: list[RetryCandidate],
    moving_jobs: Collection[int],
    *,
    at: datetime,
) -> int:
    """Plan retries of these jobs of a request; return how many.

    `moving_jobs` has the primary keys of those that are retried on another cluster.
    """
    request = lock_request(request)
    # Another process may have planned a retry of these jobs before the request was locked.
    dry_run = examine(
        [candidate.verdict for candidate in candidates],
        limits=RetryLimits(),
        at=at,
        batch=batch,
        moving_jobs=moving_jobs,
    )
    for reason, left_out in dry_run.left_out.items():
        _leave_out(batch, [verdict.job_id for verdict in left_out], LeftOut(reason).label)

    changes_of_job = _changes_by_job(batch, dry_run.eligible)
    by_array: dict[tuple[Submission, ResourceChanges], list[RetryCandidate]] = defaultdict(list)
    for candidate in dry_run.eligible:
        if candidate.submission:
            changes = changes_of_job[candidate.verdict.job_id]
            by_array[candidate.submission, changes].append(candidate)

    names = {changes.cluster for changes in changes_of_job.values() if changes.cluster}
    cluster_of_name = {}
    for other in Cluster.objects.filter(name__in=names, submits=True):
        cluster_of_name[other.name] = other

    released = 0
    for (submission, changes), members in by_array.items():
        cluster: Cluster | None = submission.cluster
        if changes.cluster:
            cluster = cluster_of_name.get(changes.cluster)
        if cluster is None:
            job_pks = [candidate.verdict.job_id for candidate in members]
            _leave_out(batch, job_pks, f"submission to {changes.cluster} is switched off")
            continue
        for array_members in _arrays(members, cluster, changes):
            released += _plan_array(
                batch,
                array_members,
                submission=submission,
                request=request,
                cluster=cluster,
                changes=changes,
                at=at,
            )
    return released


def _moving_jobs(batch: RetryBatch) -> set[int]:
    """Return the primary keys of the jobs of a batch that are retried on another cluster."""
    jobs = batch.jobs.filter(state=RetryState.WAITING, changes__has_key="cluster")
    return set(jobs.values_list("job__pk", flat=True))


def _arrays(
    members: list[RetryCandidate], cluster: Cluster, changes: ResourceChanges
) -> Iterator[list[RetryCandidate]]:
    """Yield the retries of each array: another cluster may not take as many jobs in one."""
    members = sorted(members, key=lambda candidate: candidate.index)
    if not changes.cluster:
        yield members
        return
    try:
        size = options_of(cluster).array_size
    except SchedulerError:  # the plan fails, too, and says why
        size = len(members)
    for start in range(0, len(members), size):
        yield members[start : start + size]


def _plan_array(
    batch: RetryBatch,
    members: list[RetryCandidate],
    *,
    submission: Submission,
    request: Request,
    cluster: Cluster,
    changes: ResourceChanges,
    at: datetime,
) -> int:
    """Plan an array of retries of jobs of `submission`, on a cluster; return how many.

    If it cannot be planned, the jobs are left out.
    """
    job_pks = [candidate.verdict.job_id for candidate in members]
    why = batch.reason or f"Retry batch {batch.pk}."
    if changes.cluster:
        why = f"{why} On {cluster} instead of {submission.cluster}."
    try:
        retry = plan_retry(
            submission=submission,
            request=request,
            indices=sorted(candidate.index for candidate in members),
            by=batch.created_by,
            at=at,
            reason=why,
            changes=changes,
            cluster=cluster,
        )
    except InvalidFields as error:
        _leave_out(batch, job_pks, str(error))
        return 0
    jobs = batch.jobs.filter(job__in=job_pks, state=RetryState.WAITING)
    planned: int = jobs.update(state=RetryState.RELEASED, submission=retry, released_at=at)
    return planned


def _changes_by_job(
    batch: RetryBatch, candidates: list[RetryCandidate]
) -> dict[int, ResourceChanges]:
    """Return the changes of the retries of these jobs, by primary key of the job."""
    job_pks = [candidate.verdict.job_id for candidate in candidates]
    rows = batch.jobs.filter(job__in=job_pks).values_list("job__pk", "changes")
    return {job_pk: ResourceChanges.read(stored) for job_pk, stored in rows}


def _leave_out(batch: RetryBatch, job_pks: Collection[int], why: str) -> None:
    """Leave waiting jobs out of a batch, given by their primary keys."""
    jobs = batch.jobs.filter(job__in=job_pks, state=RetryState.WAITING)
    jobs.update(state=RetryState.LEFT_OUT, why=why[:500])


def _leave_out_overridden(batch: RetryBatch, dry_run: DryRun) -> None:
    """Leave out jobs whose verdict a person has changed since the portal planned their retry.

    The rule that planned it may not match the new verdict.
    """
    if batch.created_by != PORTAL:
        return
    eligible = []
    for candidate in dry_run.eligible:
        verdict = candidate.verdict
        if verdict.overridden_at is None or verdict.overridden_at <= batch.created_at:
            eligible.append(candidate)
        else:
            why = f"the verdict was changed by {verdict.overridden_by}"
            _leave_out(batch, [verdict.job_id], why)
    dry_run.eligible = eligible


def _mark_group(batch: RetryBatch, at: datetime) -> None:
    """Mark the group of a released batch as retried, if its status allows that."""
    if batch.group is None or not batch.jobs.filter(state=RetryState.RELEASED).exists():
        return
    try:
        with transaction.atomic():
            why = f"Retry batch {batch.pk}."
            change_status(
                group=batch.group,
                status=GroupStatus.RETRIED,
                by=batch.created_by,
                at=at,
                reason=why,
            )
    except (InvalidTransition, StaleState) as error:
        log.info("%s: %s", batch, error)
