"""Why a failed job is, or is not, recovered by a rule."""

from dataclasses import dataclass
from datetime import datetime

from django.db.models import Count, Min

from apps.accounts.models import User
from apps.diagnosis.models import FailureGroup, Verdict
from apps.jobs.models import Job
from apps.production.models import Request
from apps.recovery.domain.alike import AlikeJobs
from apps.recovery.domain.matching import Explanation, Failure, explain, rules_in_order
from apps.recovery.enums import Mode
from apps.recovery.models import TO_RETRY, Decision


@dataclass(frozen=True)
class JobExplanation:
    """What was decided about a failed job, and what each rule says about it now."""

    decision: Decision | None
    rules: list[Explanation]


def planned_retry_of(job: Job) -> Decision | None:
    """Return the decision by which a rule will retry a job, with the rule; None if none will."""
    return Decision.objects.filter(TO_RETRY, job=job).select_related("rule").first()


@dataclass(frozen=True)
class PlannedRetries:
    """How many failed jobs rules will retry by themselves, and when the first at the earliest."""

    jobs: int
    first_at: datetime | None


def planned_retries_of(group: FailureGroup, user: User) -> PlannedRetries:
    """Return the planned retries of the jobs of a failure group that a user can see."""
    planned = Decision.objects.visible_to(user).filter(TO_RETRY, job__verdict__group=group)
    sums = planned.order_by().aggregate(jobs=Count("pk"), first_at=Min("act_at"))
    return PlannedRetries(sums["jobs"], sums["first_at"])


def explanation_of(verdict: Verdict) -> JobExplanation:
    """Return which rules match a failed job, which of them decides, and why the others do not."""
    decision = Decision.objects.filter(job=verdict.job_id).select_related("rule", "batch").first()
    alike_jobs = AlikeJobs([verdict]).count(verdict)
    failure = Failure(verdict, _workflow_type_of(verdict), alike_jobs)
    return JobExplanation(decision, explain(rules_in_order(tuple(Mode)), failure))


def _workflow_type_of(verdict: Verdict) -> str:
    """Return the workflow type of the request of a job.

    The owner of a job chooses the request that it names, so only requests of its experiment count.
    """
    request = Request.objects.filter(
        key=verdict.job.request_key, experiment=verdict.experiment_id
    ).select_related("workflow__type")
    named = request.first()
    return named.workflow.type.key if named else ""
