"""Follow the jobs that were decided about: how their next attempts ended, and what those used."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from django.db import transaction
from django.db.models import Q

from apps.clusters.schedulers.base import JobState
from apps.core.domain.locks import lock_for_this_transaction
from apps.jobs.domain.collection.proof import SKEW
from apps.jobs.models import Job
from apps.recovery.domain.figures.daily_effects import recount_days
from apps.recovery.enums import RETRIED_ARMS, RecoveryOutcome
from apps.recovery.models import Decision
from apps.submission.domain.retries.links import cluster_of_retry

#: A job without a later attempt within this time counts as not retried.
GIVEN_UP_AFTER = timedelta(days=7)
BATCH = 1000


@transaction.atomic
def follow_decisions(*, at: datetime) -> int:
    """Store how jobs ended that were decided about; return how many are known now."""
    lock_for_this_transaction("recovery.decisions")
    waiting = Decision.objects.filter(outcome=RecoveryOutcome.WAITING, decided_at__isnull=False)
    is_over = (
        ~Q(job__verdict__later_state="")
        | Q(decided_at__lt=at - GIVEN_UP_AFTER)
        | Q(batch__isnull=False, batch__ended_at__isnull=False)
    )
    rows = waiting.filter(is_over).select_related("job__verdict")
    decisions = list(rows.select_for_update(of=("self",)).order_by("pk")[:BATCH])
    retries = _retries_of(decisions)

    ended = []
    days = set()
    for decision in decisions:
        outcome = _outcome_of(decision, at)
        if outcome == RecoveryOutcome.WAITING:
            continue
        decision.outcome = outcome
        decision.outcome_at = at
        retry = retries.get(decision.job_id)
        decision.retry_core_seconds = retry.core_seconds if retry else 0
        ended.append(decision)
        days.add(decision.time.date())
    Decision.objects.bulk_update(
        ended, ["outcome", "outcome_at", "retry_core_seconds"], batch_size=BATCH
    )
    recount_days(days)
    return len(ended)


def _outcome_of(decision: Decision, at: datetime) -> RecoveryOutcome:
    verdict = getattr(decision.job, "verdict", None)
    later_state = verdict.later_state if verdict else ""
    if later_state == JobState.COMPLETED:
        return RecoveryOutcome.COMPLETED
    if later_state:
        return RecoveryOutcome.FAILED
    is_retried = decision.arm in RETRIED_ARMS and decision.batch_id is not None
    is_given_up = decision.time < at - GIVEN_UP_AFTER
    if is_retried or is_given_up:
        return RecoveryOutcome.NOT_RETRIED
    return RecoveryOutcome.WAITING


def _retries_of(decisions: Sequence[Decision]) -> Mapping[int, Job]:
    """Return the retry of each job that has one, by primary key of the retried job. One query."""
    names = {}
    for decision in decisions:
        verdict = getattr(decision.job, "verdict", None)
        if verdict is not None and verdict.retried_as:
            names[cluster_of_retry(verdict), verdict.retried_as] = decision
    if not names:
        return {}
    since = min(decision.time for decision in names.values()) - SKEW
    jobs = Job.objects.filter(
        cluster__in={cluster for cluster, _ in names},
        job_id__in={job_id for _, job_id in names},
        submitted_at__gte=since,
    )
    retries = {}
    for job in jobs.order_by("submitted_at", "attempt"):
        retried = names.get((job.cluster_id, job.job_id))
        if retried is not None:
            retries[retried.job_id] = job
    return retries
