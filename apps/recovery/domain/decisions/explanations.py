"""Why a failed job is, or is not, recovered by a rule."""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime

from django.db.models import Count, F, Min, QuerySet

from apps.accounts.models import User
from apps.diagnosis.domain.causes.impact.count import confirmed_jobs
from apps.diagnosis.models import FailureGroup, Verdict
from apps.jobs.models import Job
from apps.production.models import Request
from apps.recovery.domain.decisions.alike import AlikeJobs
from apps.recovery.domain.decisions.decide import describe_override
from apps.recovery.domain.decisions.match import Failure, RuleMatch, explain, rules_in_order
from apps.recovery.enums import RETRIED_ARMS, Mode
from apps.recovery.models import NO_LONGER_RETRIED, Decision
from apps.statusboard.models import Incident
from apps.submission.domain.retries.obstacles import BatchedRetry, find_batched_retry
from apps.submission.enums import RetryState
from apps.submission.models import RetryJob


@dataclass(frozen=True)
class JobExplanation:
    """What was decided about a failed job, and what each rule says about it now.

    `in_batch` is its retry in a batch that waits or runs, planned by a rule or by a user.
    """

    decision: Decision | None
    in_batch: BatchedRetry | None
    rules: list[RuleMatch]


def planned_retry_of(job: Job) -> Decision | None:
    """Return the decision by which a rule will retry a job, with the rule; None if none will.

    For users who can see the job.
    """
    of_job = Decision.objects.filter(job=job).left_to_rules()
    return of_job.select_related("rule").first()


def describe_withdrawn_retry(verdict: Verdict) -> str:
    """Return that a rule no longer retries a job since a person changed its verdict; else empty."""
    decision = Decision.objects.filter(job=verdict.job_id).first()
    if decision is None or decision.decided_at is None or verdict.overridden_at is None:
        return ""
    if decision.why.startswith(NO_LONGER_RETRIED):
        return decision.why
    if decision.arm not in RETRIED_ARMS or decision.decided_at >= verdict.overridden_at:
        return ""
    if decision.batch_id is not None:
        left_out = RetryJob.objects.filter(
            batch=decision.batch_id, job=verdict.job_id, state=RetryState.LEFT_OUT
        )
        return NO_LONGER_RETRIED + describe_override(verdict) if left_out.exists() else ""
    return f"{describe_override(verdict)} The recovery rules decide again."


def planned_retries_among(job_pks: Collection[int]) -> set[int]:
    """Return the primary keys of the jobs that rules will retry automatically."""
    planned = Decision.objects.filter(job__in=job_pks).left_to_rules()
    return set(planned.values_list("job_id", flat=True))


@dataclass(frozen=True)
class PlannedRetries:
    """How many failed jobs rules will retry automatically, and when the first at the earliest."""

    jobs: int
    first_at: datetime | None


def planned_retries_of(source: FailureGroup | Incident, user: User) -> PlannedRetries:
    """Return the planned retries of jobs of a failure group, or of those that failed because of an
    incident, as far as a user can see them.
    """
    if isinstance(source, Incident):
        planned = _planned(user).filter(job__in=confirmed_jobs(source))
    else:
        planned = _planned(user).filter(job__verdict__group=source)
    return _sum_up(planned)


def planned_retries_of_request(key: str, user: User) -> PlannedRetries:
    """Return the planned retries of jobs of the request with this key, as a user can see them."""
    return _sum_up(_planned(user).filter(job__request_key=key))


def _sum_up(planned: QuerySet[Decision]) -> PlannedRetries:
    sums = planned.aggregate(jobs=Count("pk"), first_at=Min("act_at"))
    return PlannedRetries(sums["jobs"], sums["first_at"])


def jobs_of_rules(group: FailureGroup, user: User) -> frozenset[int]:
    """Return the primary keys of the jobs of a group that rules will retry automatically."""
    planned = _planned(user).filter(job__verdict__group=group)
    return frozenset(planned.values_list("job_id", flat=True))


def count_planned_by_group(groups: Collection[FailureGroup] | None, user: User) -> dict[int, int]:
    """Return how many jobs of these groups, by primary key, rules will retry automatically.

    Without groups, count the jobs of all of them.
    """
    planned = _planned(user).filter(job__verdict__group__isnull=False)
    if groups is not None:
        planned = planned.filter(job__verdict__group__in=groups)
    return dict(planned.values_list(F("job__verdict__group")).annotate(Count("pk")))


def _planned(user: User) -> QuerySet[Decision]:
    """Return the decisions by which rules will retry jobs that a user can see."""
    return Decision.objects.visible_to(user).left_to_rules().order_by()


def explain_decision(verdict: Verdict, at: datetime) -> JobExplanation:
    """Return which rules match a failed job, which of them decides, and why the others do not."""
    of_job = Decision.objects.filter(job=verdict.job_id)
    decision = of_job.select_related("job__verdict", "rule", "batch").first()
    alike_jobs = AlikeJobs([verdict]).count(verdict)
    failure = Failure(verdict, _claimed_workflow_type(verdict), alike_jobs)
    rules = explain(rules_in_order(tuple(Mode)), failure)
    return JobExplanation(decision, find_batched_retry(verdict, at), rules)


def _claimed_workflow_type(verdict: Verdict) -> str:
    """Return the key of the workflow type of the request that a job names; else empty.

    The owner of a job chooses the request that it names, so only requests of its experiment count.
    """
    requests = Request.objects.filter(key=verdict.job.request_key, experiment=verdict.experiment_id)
    request = requests.select_related("workflow__type").first()
    return request.workflow.type.key if request else ""
