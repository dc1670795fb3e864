"""Retries of the failed jobs of a stage, without those that recovery rules will retry."""

from collections import Counter, defaultdict
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime

from django.db import transaction

from apps.accounts.models import User
from apps.core.domain.background import enqueue
from apps.core.domain.quantities import count_noun
from apps.core.errors import InvalidFields, InvalidTransition
from apps.datasets.domain.ledger import numbers_given_up_of
from apps.diagnosis.enums import VerdictKind
from apps.jobs.models import Job
from apps.production.domain.reasons import checked_reason
from apps.production.models import Request
from apps.submission.domain.arrays.assignment import check_cluster, check_not_accepted
from apps.submission.domain.arrays.plan import lock_request, plan_retry
from apps.submission.domain.arrays.submissions import (
    SENDABLE,
    check_may_submit,
    index_of,
    unretried_indices,
)
from apps.submission.domain.retries.eligibility import array_of
from apps.submission.domain.retries.planned import planned_among
from apps.submission.enums import Purpose
from apps.submission.models import Submission


@dataclass(frozen=True)
class StageRetries:
    """The retries that were planned for a stage, and how many failed jobs are left to rules."""

    submissions: list[Submission]
    left_to_rules: int

    @property
    def jobs(self) -> int:
        return sum(submission.tasks for submission in self.submissions)


@transaction.atomic
def retry_failed(
    *,
    request: Request,
    position: int,
    by: User,
    at: datetime,
    verdict: str = "",
    reason: str = "",
    with_planned: bool = False,
) -> StageRetries:
    """Plan retries of the failed jobs of a stage, optionally only of those with a verdict.

    Jobs that recovery rules will retry are left to them unless `with_planned`. Raises `NotAllowed`,
    `InvalidFields`, `InvalidTransition` if there is nothing to retry.
    """
    check_may_submit(by, request)
    request = lock_request(request)
    if verdict and verdict not in set(VerdictKind):
        raise InvalidFields({"verdict": [f"One of: {', '.join(VerdictKind)}; or empty for all."]})
    reason = checked_reason(reason, needed=False)
    if request.state not in SENDABLE:
        raise InvalidTransition(
            f"{request} is “{request.get_state_display()}”: no jobs can be sent for it."
        )
    check_not_accepted(request, position)

    arrays = _arrays_of(request, position)
    of_rules = {} if with_planned else _left_to_rules(arrays)
    given_up = numbers_given_up_of([request.pk])
    retries: list[Submission] = []
    left_to_rules = 0
    for array in arrays:
        failed = set(unretried_indices(array, verdict=verdict))
        failed -= {index for index in failed if (request.pk, position, index) in given_up}
        of_rule = failed & of_rules.get(array.pk, set())
        left_to_rules += len(of_rule)
        if indices := sorted(failed - of_rule):
            check_cluster(array.cluster, request)
            retry = plan_retry(
                submission=array, request=request, indices=indices, by=by, at=at, reason=reason
            )
            retries.append(retry)
    if not retries and left_to_rules:
        jobs = count_noun(left_to_rules, "failed job")
        raise InvalidTransition(
            f"{request}: recovery rules will retry {jobs} of this stage, there are no others."
        )
    if not retries:
        raise InvalidTransition(f"{request}: this stage has no failed jobs to retry.")

    for cluster_id in {retry.cluster_id for retry in retries}:
        enqueue("submission.send_to", cluster_id=cluster_id)
    return StageRetries(retries, left_to_rules)


def count_left_to_rules(request: Request) -> Counter[int]:
    """Return how many failed jobs recovery rules will retry, by position of the stage.

    The number of queries is fixed.
    """
    arrays = _arrays_of(request)
    of_rules = _left_to_rules(arrays)
    counts: Counter[int] = Counter()
    for array in arrays:
        counts[array.position] += len(
            of_rules.get(array.pk, set()).intersection(unretried_indices(array))
        )
    return counts


def _arrays_of(request: Request, position: int | None = None) -> list[Submission]:
    """Return the production arrays of a request, or of one stage, with their retries."""
    arrays = request.submissions.filter(purpose=Purpose.PRODUCTION)
    if position is not None:
        arrays = arrays.filter(position=position)
    return list(arrays.prefetch_related("retries").select_related())


def _left_to_rules(arrays: Collection[Submission]) -> dict[int, set[int]]:
    """Return the numbers of the jobs that rules will retry, by primary key of their array."""
    by_spool: dict[tuple[int, str], list[Submission]] = defaultdict(list)
    for array in arrays:
        if array.failed_indices and array.spool_id:
            by_spool[array.cluster_id, array.spool_id].append(array)
    if not by_spool:
        return {}

    jobs = Job.objects.filter(
        spool_id__in={spool for _, spool in by_spool}, verdict__later_state=""
    )
    failed = list(jobs.only("pk", "job_id", "spool_id", "cluster_id", "submitted_at"))
    planned = planned_among(job.pk for job in failed)
    numbers: dict[int, set[int]] = defaultdict(set)
    for job in failed:
        array_of_job = array_of(job, by_spool)
        if job.pk not in planned or array_of_job is None:
            continue
        index = index_of(array_of_job, job.job_id)
        if index is not None:
            numbers[array_of_job.pk].add(index)
    return numbers
