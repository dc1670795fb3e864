"""Batches of retries: plan a batch, cancel jobs that are not released yet, resume after a stop."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from math import ceil
from typing import Any

from django.db import transaction
from django.db.models import Count, QuerySet

from apps.accounts.models import User
from apps.core.domain.background import enqueue
from apps.core.domain.events import publish
from apps.core.domain.locks import lock_for_this_transaction
from apps.core.domain.workflow import move
from apps.core.errors import InvalidFields, InvalidTransition, NotAllowed, StaleState
from apps.diagnosis.domain.groups.triage import change_status
from apps.diagnosis.enums import SECTION_OF, GroupSection, GroupStatus
from apps.diagnosis.models import FailureGroup
from apps.jobs.models import Job
from apps.production.domain.reasons import checked_reason
from apps.statusboard.models import Incident
from apps.submission.domain.arrays.changed_resources import ResourceChanges
from apps.submission.domain.arrays.submissions import may_submit, may_submit_as_owner
from apps.submission.domain.retries.bad_hosts import changes_avoiding
from apps.submission.domain.retries.eligibility import (
    DryRun,
    RetryCandidate,
    RetryLimits,
    Source,
    array_of,
    arrays_with_ids_of,
    examine,
    failed_jobs_of,
)
from apps.submission.domain.retries.planned import leave_out_planned
from apps.submission.enums import BATCH_MOVES, IN_BATCH, BatchState, RetryState
from apps.submission.models import RetryBatch, RetryJob

#: Largest and smallest default of the jobs of a step.
STEP = 50
FEWEST_IN_STEP = 5
#: Minimum number of steps of a batch by default, so that it can stop before all its jobs are
#: released.
STEPS = 5
#: Defaults of the other limits of a batch.
PAUSE_MINUTES = 5
ATTEMPTS = 3
#: Largest values of the limits of a batch.
MOST_STEP = 1000
MOST_PAUSE_MINUTES = 1440
MOST_ATTEMPTS = 20
MOST_OF_STAGE = 1_000_000
MOST_AVOIDED = 20
#: The changes of a retry that asks for what its failed attempt did.
UNCHANGED = ResourceChanges()


def dry_run(
    *, source: Source, user: User, limits: RetryLimits, at: datetime, with_planned: bool = False
) -> DryRun:
    """Return which jobs a batch would retry, and why others are left out. Changes nothing.

    Jobs that recovery rules will retry are left to them unless `with_planned`. A single job is
    chosen by its user, whoever else would retry it.
    """
    outcome = examine(failed_jobs_of(source, user), limits=limits, user=user, at=at)
    if not with_planned and not isinstance(source, Job):
        leave_out_planned(outcome)
    return outcome


def default_step(jobs: int) -> int:
    """Return how many jobs a batch releases at a time unless its planner chooses."""
    return min(STEP, max(FEWEST_IN_STEP, ceil(jobs / STEPS)))


def lock_planning() -> None:
    """Let no other transaction plan retries until this one ends: a job enters one batch only."""
    lock_for_this_transaction("submission.retries")


@transaction.atomic
def plan_batch(
    *,
    source: Source,
    by: User,
    at: datetime,
    step: int | None = None,
    pause_minutes: int = PAUSE_MINUTES,
    attempts: int | None = ATTEMPTS,
    of_stage: int | None = None,
    reason: str = "",
    avoid_hosts: Collection[str] = (),
    with_planned: bool = False,
) -> RetryBatch:
    """Plan retries of all eligible failed jobs of a source, which are released in steps.

    Without a `step`, it is chosen by the number of jobs. The retries do not run on `avoid_hosts`,
    on which some of the jobs failed. Jobs that recovery rules will retry are taken only
    `with_planned`.
    Raises `InvalidFields`, and `InvalidTransition` if there is nothing to retry.
    """
    if step is not None and not 1 <= step <= MOST_STEP:
        raise InvalidFields({"step": [f"Enter 1 to {MOST_STEP:,} jobs."]})
    reason = checked_reason(reason, needed=False)
    lock_planning()

    limits = RetryLimits(attempts, of_stage)
    preview = dry_run(source=source, user=by, limits=limits, at=at, with_planned=with_planned)
    if not preview.eligible:
        raise InvalidTransition("No job can be retried. The dry run shows the reasons.")
    changes = changes_avoiding(avoid_hosts, preview.eligible, at=at)

    batch = RetryBatch.objects.create(
        group=source if isinstance(source, FailureGroup) else None,
        incident=source if isinstance(source, Incident) else None,
        job=source if isinstance(source, Job) else None,
        title=batch_title(source),
        step=step or default_step(len(preview.eligible)),
        pause_minutes=pause_minutes,
        reason=reason,
        created_at=at,
        created_by=str(by)[:150],
        due_at=at,
    )
    retry_jobs = []
    for candidate in reversed(preview.eligible):
        retry_job = RetryJob(
            batch=batch,
            job_id=candidate.verdict.job_id,
            as_owner=candidate.submission is None,
            attempt=candidate.attempt,
            changes=changes.get(candidate.verdict.job_id, UNCHANGED).as_stored(),
        )
        retry_jobs.append(retry_job)
    RetryJob.objects.bulk_create(retry_jobs, batch_size=1000)

    publish_batch_event(
        "retry.planned", batch, by=by, at=at, reason=reason, jobs=len(preview.eligible)
    )
    if batch.group is not None:
        _take_group(batch.group, batch, by=by, at=at)
    enqueue("submission.release_retries")
    return batch


def _take_group(group: FailureGroup, batch: RetryBatch, *, by: User, at: datetime) -> None:
    """Assign a group without an owner to the user who retries its jobs.

    Once all are released, it is retried.
    """
    if SECTION_OF[GroupStatus(group.status)] is not GroupSection.ACTION:
        return
    changes = {"owner": by.username, "muted_until": None}
    with suppress(InvalidTransition, StaleState), transaction.atomic():
        change_status(
            group=group,
            status=GroupStatus.ASSIGNED,
            by=by,
            at=at,
            reason=f"Retry batch {batch.pk}.",
            **changes,
        )


@transaction.atomic
def retry_in_batch(
    *,
    candidates: Sequence[RetryCandidate],
    changes: Mapping[int, Mapping[str, Any]],
    title: str,
    reason: str,
    by: str,
    at: datetime,
) -> RetryBatch:
    """Retry these jobs at once, each with its changed resources by primary key of the job.

    The caller decides who may retry, how many, and when to stop. It examines the jobs after
    `lock_planning`, in the same transaction.
    """
    batch = RetryBatch.objects.create(
        title=title,
        step=max(1, min(len(candidates), MOST_STEP)),
        pause_minutes=0,
        stops=False,
        reason=reason,
        created_at=at,
        created_by=by,
        due_at=at,
    )
    retry_jobs = []
    for candidate in candidates:
        retry_job = RetryJob(
            batch=batch,
            job_id=candidate.verdict.job_id,
            as_owner=candidate.submission is None,
            attempt=candidate.attempt,
            changes=changes[candidate.verdict.job_id],
        )
        retry_jobs.append(retry_job)
    RetryJob.objects.bulk_create(retry_jobs, batch_size=1000)
    publish_batch_event("retry.planned", batch, by=by, at=at, reason=reason, jobs=len(candidates))
    return batch


@transaction.atomic
def cancel_batch(*, batch: RetryBatch, by: User, at: datetime, reason: str = "") -> int:
    """Cancel the jobs of a batch that are not released yet; return how many.

    Released jobs continue. Raises `NotAllowed`, `InvalidTransition` if all are released, and
    `StaleState`.
    """
    batch = _locked(batch, by)
    move(batch, to=BatchState.CANCELLED, transitions=BATCH_MOVES, ended_at=at)
    waiting = RetryJob.objects.filter(batch=batch, state=RetryState.WAITING)
    jobs: int = waiting.update(state=RetryState.CANCELLED)
    publish_batch_event(
        "retry.cancelled",
        batch,
        by=by,
        at=at,
        reason=checked_reason(reason, needed=False),
        jobs=jobs,
    )
    return jobs


@transaction.atomic
def resume_batch(*, batch: RetryBatch, by: User, at: datetime, reason: str = "") -> RetryBatch:
    """Resume a batch that stopped because too many retries failed. Raises as `cancel_batch`."""
    batch = _locked(batch, by)
    if batch.state != BatchState.STOPPED:
        raise InvalidTransition(f"The batch is {batch.get_state_display()}, not stopped.")
    move(batch, to=BatchState.RELEASING, transitions=BATCH_MOVES, released_at=None, stops=False)
    publish_batch_event(
        "retry.resumed", batch, by=by, at=at, reason=checked_reason(reason, needed=False)
    )
    enqueue("submission.release_retries")
    return batch


def _locked(batch: RetryBatch, by: User) -> RetryBatch:
    locked_batch: RetryBatch = RetryBatch.objects.select_for_update().get(pk=batch.pk)
    if not may_change(by, locked_batch):
        raise NotAllowed(
            "Only approvers and shifters of all experiments in the batch can change it."
        )
    return locked_batch


def visible_batches(user: User) -> QuerySet[RetryBatch]:
    """Return the batches with jobs that the user may see."""
    mine = RetryJob.objects.filter(job__in=Job.objects.visible_to(user))
    return RetryBatch.objects.filter(pk__in=mine.values("batch")).select_related(
        "group", "incident", "job__cluster"
    )


def may_change(user: User, batch: RetryBatch) -> bool:
    """Return whether the user may submit all jobs of a batch."""
    owned = batch.jobs.filter(as_owner=True)
    owned_experiment_pks = set(owned.values_list("job__experiment", flat=True))
    of_portal = batch.jobs.filter(as_owner=False).values("job")
    jobs = list(Job.objects.filter(pk__in=of_portal).only("cluster", "spool_id", "submitted_at"))
    arrays = arrays_with_ids_of(jobs)
    requests = set()
    for job in jobs:
        array = array_of(job, arrays)
        if array is not None:
            requests.add(array.request)

    if not requests and not owned_experiment_pks:
        return False
    if not all(may_submit(user, request) for request in requests):
        return False
    return all(may_submit_as_owner(user, experiment_pk) for experiment_pk in owned_experiment_pks)


def counts_of(batch: RetryBatch) -> dict[str, int]:
    """Return the number of jobs of a batch by state, without states that no job has."""
    return counts_by_batch([batch]).get(batch.pk, {})


def counts_by_batch(batches: Iterable[RetryBatch]) -> dict[int, dict[str, int]]:
    """Return the number of jobs by state for each batch, by its primary key, in one query."""
    jobs = RetryJob.objects.filter(batch__in=list(batches)).order_by()
    counts: dict[int, dict[str, int]] = {}
    for batch_pk, state, count in jobs.values_list("batch", "state").annotate(jobs=Count("pk")):
        counts.setdefault(batch_pk, {})[state] = count
    return counts


def batch_title(source: Source) -> str:
    """Return the title of a batch, which names its group, incident or job."""
    match source:
        case FailureGroup():
            return f"F-{source.pk} {source.title}"
        case Incident():
            return f"Incident {source.pk}: {source.title}"[:250]
    return f"Job {source}"


def publish_batch_event(
    kind: str, batch: RetryBatch, *, by: User | str, at: datetime, reason: str = "", **data: int
) -> None:
    """Publish an event of a batch in the timeline of its group, incident or job."""
    target = batch.source or batch
    publish(
        kind=kind,
        target=target,
        by=by,
        at=at,
        new=batch.state,
        reason=reason,
        data={"batch": batch.pk, **data},
    )


def latest_batches(source: Source, user: User) -> list[RetryBatch]:
    """Return the newest batches of a source with jobs that the user may see."""
    rows = visible_batches(user).filter(pk__in=source.retry_batches.values("pk"))
    return list(rows.order_by("-pk")[:5])


def batches_with_jobs_of(group: FailureGroup, user: User) -> list[RetryBatch]:
    """Return the newest batches in which jobs of a group wait or run, planned by any user or rule.

    Without any, return those that were planned for the group.
    """
    rows = RetryJob.objects.filter(job__verdict__group=group, state__in=IN_BATCH)
    current = visible_batches(user).filter(pk__in=rows.values("batch")).order_by("-pk")
    return list(current[:5]) or latest_batches(group, user)


def states_in_batches(group: FailureGroup) -> dict[int, str]:
    """Return whether the retries of failed jobs of a group wait or run, by the job's primary key.

    Jobs in no batch are left out.
    """
    rows = RetryJob.objects.filter(job__verdict__group=group, state__in=IN_BATCH)
    return dict(rows.values_list("job__pk", "state"))
