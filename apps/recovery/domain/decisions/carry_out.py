"""Carry out what recovery rules decided: hold stages, and retry jobs.

Few jobs are retried at first, and more as retries succeed.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import date, datetime, timedelta

from django.db import transaction
from django.db.models import Count, Min, Q

from apps.core.domain.background import enqueue
from apps.core.domain.locks import lock_for_this_transaction
from apps.diagnosis.models import Verdict
from apps.production.domain.approvals.inbox import responsible_users
from apps.production.domain.holds import hold_stage
from apps.production.enums import PORTAL, RequestState
from apps.production.models import Stage
from apps.recovery.domain.decisions.choice import LATELY, PAUSE, retries_that_may_start
from apps.recovery.domain.decisions.remedies import NO_PLACE, choose_cluster
from apps.recovery.domain.figures.daily_effects import recount_days
from apps.recovery.domain.rules.definition import Action, read_definition
from apps.recovery.enums import RETRIED_ARMS, Arm, RecoveryOutcome
from apps.recovery.models import Decision, HeldStage, RecoveryRule, RecoveryRuleVersion
from apps.submission.domain.arrays.changed_resources import ResourceChanges
from apps.submission.domain.retries.batches import lock_planning, retry_in_batch
from apps.submission.domain.retries.eligibility import (
    DryRun,
    RetryCandidate,
    RetryLimits,
    examine,
)
from apps.submission.domain.retries.other_clusters import OtherClusters
from apps.submission.enums import ALREADY_RETRIED

#: Jobs retried in one transaction.
MOST_AT_ONCE = 500
#: Minimum number of jobs to retry at once. Fewer wait until the first of them has waited
#: `GATHERING`, so that jobs that fail one by one do not each become an array.
WORTH_AN_ARRAY = 50
GATHERING = timedelta(minutes=2)


def act_on_due(*, at: datetime) -> int:
    """Plan the retries that rules decided on and that may start now; return how many."""
    due = Decision.objects.to_retry().filter(act_at__lte=at)
    retries = due.order_by().values_list("rule", "version", "job__verdict__service")
    retried = 0
    for rule_id, version, service, jobs, first_at in list(
        retries.annotate(Count("pk"), Min("act_at"))
    ):
        if jobs >= WORTH_AN_ARRAY or first_at <= at - GATHERING:
            retried += _retry_due(rule_id, version, service, at)
    return retried


def hold_stages(rules_of_stages: Mapping[tuple[int, int], RecoveryRule], *, at: datetime) -> None:
    """Put stages on hold, in the caller's transaction; each once for a version of a rule.

    `rules_of_stages` are the rules by request (primary key) and position of the stage.
    """
    if not rules_of_stages:
        return
    request_ids = {request_id for request_id, _ in rules_of_stages}
    held = HeldStage.objects.filter(stage__request__in=request_ids)
    held_before = set(held.values_list("stage", "rule", "version"))
    for stage in Stage.objects.filter(request__in=request_ids).select_related("request"):
        rule = rules_of_stages.get((stage.request_id, stage.position))
        if rule is None or (stage.pk, rule.pk, rule.version) in held_before:
            continue
        reason = f"Recovery rule “{rule}” asks a person to look at its failed jobs."
        people = responsible_users(RequestState.ON_HOLD, stage.request.experiment_id)
        hold = hold_stage(stage=stage, at=at, reason=reason, people=people)
        if hold is not None:
            HeldStage.objects.create(rule=rule, version=rule.version, stage=stage, hold=hold)


@transaction.atomic
def _retry_due(rule_id: int, version: int, service: str | None, at: datetime) -> int:
    """Plan the due retries of one version of a rule for one failed service; return how many.

    They are one batch. Each service has steps of its own: one that is still down does not hold up
    the others.
    """
    lock_for_this_transaction("recovery.decisions")
    lock_planning()
    due = Decision.objects.to_retry().filter(
        rule=rule_id, version=version, job__verdict__service=service, act_at__lte=at
    )
    most = _count_free(rule_id, version, service, at)
    decisions = {decision.job_id: decision for decision in due.order_by("act_at", "pk")[:most]}
    verdicts = Verdict.objects.filter(job__in=decisions).select_related(
        "job__cluster", "experiment"
    )
    # The jobs that are retried on another cluster than their own.
    moving_jobs = set()
    for decision in decisions.values():
        if ResourceChanges.read(decision.changes).cluster:
            moving_jobs.add(decision.job_id)

    # A person may have retried some of the jobs since the decision.
    dry_run = examine(list(verdicts), limits=RetryLimits(), at=at, moving_jobs=moving_jobs)
    days = _store_left_out(dry_run, decisions)
    moving = []
    candidates = []
    for candidate in dry_run.eligible:
        if candidate.verdict.job_id in moving_jobs:
            moving.append(candidate)
        else:
            candidates.append(candidate)
    if moving:
        # The cluster that had room when the rule decided may be full, or down, by now.
        signed = RecoveryRuleVersion.objects.get(rule=rule_id, number=version)
        action = read_definition(signed.definition).action
        moved, questions = _choose_clusters(moving, decisions, action, at)
        candidates += moved
        days.update(decision.time.date() for decision in questions)
    recount_days(days)
    if candidates:
        _plan_batch(candidates, decisions, rule_id, version, at)
    return len(candidates)


def _store_left_out(dry_run: DryRun, decisions: Mapping[int, Decision]) -> set[date]:
    """Store why jobs are not retried after all; return the days of the changed decisions.

    `decisions` are by the primary key of the job.
    """
    days = set()
    for reason, verdicts in dry_run.left_out.items():
        for verdict in verdicts:
            decision = decisions[verdict.job_id]
            decision.arm = Arm.HANDLED if reason in ALREADY_RETRIED else Arm.PERSON
            decision.why = reason.label
            decision.save(update_fields=["arm", "why"])
            days.add(decision.time.date())
    return days


def _plan_batch(
    candidates: Sequence[RetryCandidate],
    decisions: Mapping[int, Decision],
    rule_id: int,
    version: int,
    at: datetime,
) -> None:
    """Plan a batch with the retries of a rule, and have it released."""
    changes = {}
    for candidate in candidates:
        changes[candidate.verdict.job_id] = decisions[candidate.verdict.job_id].changes
    rule = RecoveryRule.objects.get(pk=rule_id)
    batch = retry_in_batch(
        candidates=candidates,
        changes=changes,
        title=f"Recovery: {rule.name}",
        reason=f"Recovery rule “{rule.name}”, version {version}.",
        by=PORTAL,
        at=at,
    )
    Decision.objects.filter(job__in=changes).update(batch=batch)
    enqueue("submission.release_retries")


def _choose_clusters(
    candidates: Sequence[RetryCandidate],
    decisions: Mapping[int, Decision],
    action: Action,
    at: datetime,
) -> tuple[list[RetryCandidate], list[Decision]]:
    """Store on which cluster each of these jobs is retried instead of its own.

    Return the jobs with such a cluster, and the decisions about the others, which become questions.
    """
    submissions = [candidate.submission for candidate in candidates if candidate.submission]
    other_clusters = OtherClusters(submissions, at)
    moved = []
    questions = []
    for candidate in candidates:
        decision = decisions[candidate.verdict.job_id]
        other = choose_cluster(action, candidate, other_clusters)
        if other is None:
            decision.arm = Arm.QUESTION
            decision.why = NO_PLACE[action.kind]
            decision.changes = {}
            questions.append(decision)
        else:
            changes = ResourceChanges.read(decision.changes)
            decision.changes = replace(changes, cluster=other.name).as_stored()
            moved.append(candidate)
    rows = [decisions[candidate.verdict.job_id] for candidate in candidates]
    Decision.objects.bulk_update(rows, ["arm", "why", "changes"], batch_size=MOST_AT_ONCE)
    return moved, questions


def _count_free(rule_id: int, version: int, service: str | None, at: datetime) -> int:
    """Return how many more retries may start now."""
    retried = Decision.objects.filter(
        rule=rule_id,
        version=version,
        job__verdict__service=service,
        arm__in=RETRIED_ARMS,
        batch__isnull=False,
    )
    completed_lately = Q(outcome=RecoveryOutcome.COMPLETED, outcome_at__gte=at - LATELY)
    failed_lately = Q(outcome=RecoveryOutcome.FAILED, outcome_at__gte=at - PAUSE)
    counts = retried.aggregate(
        completed=Count("pk", filter=completed_lately),
        failed=Count("pk", filter=failed_lately),
        unfinished=Count("pk", filter=Q(outcome=RecoveryOutcome.WAITING)),
    )
    return min(retries_that_may_start(**counts), MOST_AT_ONCE)
