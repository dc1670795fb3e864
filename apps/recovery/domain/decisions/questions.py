"""Answer the questions of recovery rules: retry jobs beyond a bound, or leave them failed."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from django.db import transaction
from django.db.models import Count, Exists, Max, OuterRef, QuerySet

from apps.accounts.models import User
from apps.clusters.models import Cluster
from apps.core.domain.background import enqueue
from apps.core.domain.locks import lock_for_this_transaction
from apps.core.domain.quantities import round_duration, round_size
from apps.core.errors import InvalidFields, InvalidTransition
from apps.diagnosis.models import Verdict
from apps.jobs.models import Job
from apps.production.domain.holds import lift_hold, open_holds
from apps.production.domain.reasons import checked_reason
from apps.production.domain.types.fields import CORE
from apps.production.models import Hold
from apps.recovery.domain.decisions.decide import decide_again_about
from apps.recovery.domain.decisions.remedies import NO_PLACE, increase
from apps.recovery.domain.figures.daily_effects import recount_days
from apps.recovery.domain.rules.definition import read_definition
from apps.recovery.enums import ActionKind, Arm, RecoveryOutcome
from apps.recovery.models import OPEN_QUESTION, OVERRIDDEN_SINCE, Decision
from apps.submission.domain.arrays.changed_resources import ResourceChanges
from apps.submission.domain.retries.batches import lock_planning, retry_in_batch
from apps.submission.domain.retries.eligibility import (
    MOST_JOBS,
    DryRun,
    RetryLimits,
    array_of,
    arrays_with_ids_of,
    examine,
)
from apps.submission.enums import RetryState
from apps.submission.models import RetryBatch, RetryJob


@dataclass(frozen=True)
class StageQuestion:
    """A question about the failed jobs of one stage, as a user sees it.

    `dry_run` says which jobs the user can retry, and why not the others.
    """

    decision: Decision
    jobs: list[Decision]
    dry_run: DryRun

    @property
    def avoids_hosts(self) -> bool:
        """Whether retries of some of its jobs do not start where the jobs failed."""
        return any(ResourceChanges.read(decision.changes).avoided_hosts for decision in self.jobs)

    @property
    def other_clusters(self) -> list[str]:
        """The names of the clusters on which retries of its jobs run instead of their own."""
        names = {ResourceChanges.read(decision.changes).cluster for decision in self.jobs}
        return sorted(names - {""})

    @property
    def stays_on_cluster(self) -> bool:
        """Whether its rule wants another cluster or site and none may be used."""
        return self.decision.why in NO_PLACE.values()


def hold_over(job: Job) -> Hold | None:
    """Return the hold on the stage of a job. No retry of the job starts before it is lifted."""
    submission = array_of(job, arrays_with_ids_of([job]))
    if submission is None:
        return None
    on_stage = {"stage__request": submission.request_id, "stage__position": submission.position}
    return open_holds().filter(**on_stage).first()


def _lift_hold_over(job: Job, *, by: User, at: datetime, reason: str) -> None:
    hold = hold_over(job)
    if hold is not None:
        lift_hold(hold=hold, by=by, at=at, reason=reason)


def questions_for(user: User) -> QuerySet[Decision]:
    """Return the decisions on jobs that the user sees which need a person, newest first.

    A job that was retried or completed since needs no decision.
    """
    questions = Decision.objects.visible_to(user).filter(OPEN_QUESTION)
    return questions.select_related("job__cluster", "rule").order_by("-decided_at", "-pk")


def grouped_questions(user: User) -> QuerySet[Any, Any]:
    """Return the questions that are the same for several jobs of a stage, newest first.

    Each has the number of `jobs`, when the newest was asked (`last_at`) and its primary key
    (`newest`).
    """
    questions = questions_for(user).order_by()
    groups = questions.values(
        "rule", "rule__name", "version", "why", "job__request_key", "job__stage"
    )
    counted = groups.annotate(jobs=Count("pk"), last_at=Max("decided_at"), newest=Max("pk"))
    return counted.order_by("-last_at", "-newest")


def read_question(*, decision: Decision, user: User, at: datetime) -> StageQuestion:
    """Return the question of a decision with all jobs that it is asked about, 5,000 at most."""
    alike = questions_for(user).filter(
        rule=decision.rule_id,
        version=decision.version,
        why=decision.why,
        job__request_key=decision.job.request_key,
        job__stage=decision.job.stage,
    )
    jobs = list(alike[:MOST_JOBS])
    return StageQuestion(decision, jobs, examine_jobs(jobs, user=user, at=at))


def examine_jobs(decisions: Sequence[Decision], *, user: User, at: datetime) -> DryRun:
    """Return which jobs of decisions the user can retry, and why not the others."""
    verdicts = Verdict.objects.visible_to(user).filter(
        job__in=[decision.job_id for decision in decisions]
    )
    related = verdicts.select_related("job__cluster", "experiment").order_by("-ended_at", "-pk")
    moving_jobs = [
        decision.job_id for decision in decisions if ResourceChanges.read(decision.changes).cluster
    ]
    return examine(list(related), limits=RetryLimits(), user=user, at=at, moving_jobs=moving_jobs)


def next_step(decision: Decision) -> ResourceChanges:
    """Return what the rule would give next without its bound, within the limits of the cluster.

    If the question is not about resources, that is what the rule wanted to give.
    """
    if decision.changes:
        return ResourceChanges.read(decision.changes)
    if decision.rule is None:
        return ResourceChanges()
    action = read_definition(decision.rule.definition).action
    job = decision.job
    if action.kind == ActionKind.MORE_MEMORY and job.requested_memory_bytes:
        more = increase(job.requested_memory_bytes, action.factor)
        return ResourceChanges(memory_bytes=min(more, job.cluster.max_memory_bytes or more))
    if action.kind == ActionKind.MORE_TIME and job.time_limit_seconds:
        more = increase(job.time_limit_seconds, action.factor)
        return ResourceChanges(time_limit_seconds=min(more, job.cluster.max_wall_seconds or more))
    return ResourceChanges()


@transaction.atomic
def retry_beyond(
    *,
    decision: Decision,
    changes: ResourceChanges,
    by: User,
    at: datetime,
    reason: str,
    with_hold: bool = False,
) -> RetryBatch:
    """Retry the jobs of a question with these resources, all at once.

    With `with_hold`, lift the hold on their stage, too.

    Each job also gets what its rule wanted: hosts to avoid, another cluster, half its events.

    Raises `InvalidFields`, and `InvalidTransition` if the user can retry none of them.
    """
    reason = checked_reason(reason, needed=True)
    lock_for_this_transaction("recovery.decisions")
    lock_planning()
    question = read_question(decision=decision, user=by, at=at)
    candidates = question.dry_run.eligible
    if not candidates:
        raise InvalidTransition("No job can be retried. The list shows the reasons.")
    changes_of_jobs = {}
    cluster_of_job = {}
    clusters = {cluster.name: cluster for cluster in Cluster.objects.all()}
    for waiting in question.jobs:
        of_rule = ResourceChanges.read(waiting.changes)
        own = replace(
            of_rule,
            memory_bytes=changes.memory_bytes,
            time_limit_seconds=changes.time_limit_seconds,
        )
        changes_of_jobs[waiting.job_id] = own.as_stored()
        cluster_of_job[waiting.job_id] = clusters.get(of_rule.cluster, waiting.job.cluster)
    _check_resources([candidate.verdict.job for candidate in candidates], cluster_of_job, changes)
    batch = retry_in_batch(
        candidates=candidates,
        changes=changes_of_jobs,
        title=f"Recovery: {decision.rule}, answered",
        reason=reason,
        by=str(by)[:150],
        at=at,
    )
    retried = [candidate.verdict.job_id for candidate in candidates]
    Decision.objects.filter(job__in=retried).update(batch=batch)
    if with_hold:
        _lift_hold_over(decision.job, by=by, at=at, reason=reason)
    enqueue("submission.release_retries")
    return batch


def _check_resources(
    jobs: list[Job], cluster_of_job: Mapping[int, Cluster], changes: ResourceChanges
) -> None:
    problems = {}
    for job in jobs:
        cluster = cluster_of_job[job.pk]
        if changes.memory_bytes:
            had = job.requested_memory_bytes or 0
            limit = cluster.max_memory_bytes or CORE["memory_bytes"].most
            if problem := _outside(changes.memory_bytes, had, limit, round_size):
                problems["memory"] = [problem]
        if changes.time_limit_seconds:
            had = job.time_limit_seconds or 0
            limit = cluster.max_wall_seconds or CORE["wall_seconds"].most
            if problem := _outside(changes.time_limit_seconds, had, limit, round_duration):
                problems["wall_time"] = [problem]
    if problems:
        raise InvalidFields(problems)


def _outside(value: int, had: int, limit: int, text_of: Callable[[int], str]) -> str:
    if value < had:
        return f"A failed attempt already had {text_of(had)}."
    if value > limit:
        return f"At most {text_of(limit)} for one job."
    return ""


@transaction.atomic
def ask_again(*, at: datetime) -> int:
    """Ask questions again whose retries were cancelled before they were submitted; return how many.

    If a person has changed the verdict meanwhile, the rules decide again instead. The decision of
    a rule itself is not asked about: whoever cancels its retries wants none.
    """
    lock_for_this_transaction("recovery.decisions")
    cancelled = RetryJob.objects.filter(
        batch=OuterRef("batch"), job=OuterRef("job"), state=RetryState.CANCELLED
    )
    answered = Decision.objects.filter(
        arm__in=[Arm.QUESTION, Arm.BUDGET], outcome=RecoveryOutcome.WAITING, batch__isnull=False
    )
    reopened = answered.filter(Exists(cancelled))
    overridden = list(reopened.filter(OVERRIDDEN_SINCE).values_list("job_id", flat=True))
    questions: int = reopened.update(batch=None)
    for job_id in overridden:
        decide_again_about(job_id, at=at)
    return questions


@transaction.atomic
def leave_failed(
    *, decision: Decision, by: User, at: datetime, reason: str, with_hold: bool = False
) -> int:
    """Answer a question with no: its jobs stay failed. Return how many.

    With `with_hold`, lift the hold on their stage, too.

    Users who may retry a job may leave it failed. Raises `InvalidFields`, and `InvalidTransition`
    if the user may retry none of the jobs.
    """
    reason = checked_reason(reason, needed=True)
    lock_for_this_transaction("recovery.decisions")
    question = read_question(decision=decision, user=by, at=at)
    may_leave = {candidate.verdict.job_id for candidate in question.dry_run.eligible}
    left = [decision for decision in question.jobs if decision.job_id in may_leave]
    if not left:
        raise InvalidTransition("You can retry none of these jobs, so you cannot leave them.")
    leave_to_person(left, by=by, reason=reason)
    if with_hold:
        _lift_hold_over(decision.job, by=by, at=at, reason=reason)
    return len(left)


def leave_to_person(decisions: Sequence[Decision], *, by: User, reason: str) -> None:
    """Note that a user leaves the jobs of decisions failed, in the caller's transaction."""
    rows = Decision.objects.filter(pk__in=[decision.pk for decision in decisions])
    rows.update(arm=Arm.PERSON, why=f"Left failed by {by}: {reason}"[:500])
    recount_days({decision.time.date() for decision in decisions})
