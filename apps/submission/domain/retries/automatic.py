"""Automatic retries of jobs that failed because of a service, once it is up,
a limited number of times.
"""

import logging
from datetime import datetime, timedelta

from django.db import transaction
from django.db.models import F, Q

from apps.clusters.models import Cluster
from apps.core.errors import InvalidFields
from apps.diagnosis.enums import Advice, VerdictKind
from apps.diagnosis.models import Verdict
from apps.production.domain.outlook import Outlook, outlook
from apps.production.domain.outputs.acceptance import acceptance_of
from apps.production.enums import PORTAL, RequestState
from apps.submission.domain.arrays.plan import locked, plan_retry
from apps.submission.domain.arrays.rows import options_of
from apps.submission.domain.arrays.submissions import failed_of, index_of, jobs_of
from apps.submission.domain.retries.eligibility import reserved_indices
from apps.submission.enums import Purpose, SubmissionState
from apps.submission.models import Submission

log = logging.getLogger(__name__)

#: Failed jobs of a running array are retried from this number on.
WORTH_AN_ARRAY = 50
#: Later verdicts cause no automatic retry.
VERDICT_WITHIN = timedelta(days=1)


def retry_by_verdict(*, cluster: Cluster, at: datetime) -> list[Submission]:
    """Plan retries of jobs on a cluster that failed because of a service which is up again.

    A job is retried at most `retries` times, an option of the cluster. Raises `SchedulerError` for
    invalid options.
    """
    retries = options_of(cluster).retries
    if not retries or not cluster.submits:
        return []
    now = outlook(at)
    many = Q(settled_at=None, ended__gte=F("completed") + WORTH_AN_ARRAY)
    failed = Submission.objects.filter(
        Q(settled_at__gte=at - VERDICT_WITHIN) | many,
        cluster=cluster,
        state=SubmissionState.SENT,
        purpose=Purpose.PRODUCTION,
        cancelled_at=None,
        request__state=RequestState.RUNNING,
    ).exclude(failed_indices="")

    planned = []
    for submission in failed.order_by("pk"):
        if _tries(submission) <= retries:
            retry = _retry(submission, now, at)
            if retry is not None:
                planned.append(retry)
    return planned


@transaction.atomic
def _retry(submission: Submission, now: Outlook, at: datetime) -> Submission | None:
    request = locked(submission.request)
    submission = (
        request.submissions.select_related("cluster")
        .prefetch_related("retries")
        .get(pk=submission.pk)
    )
    if request.state != RequestState.RUNNING or acceptance_of(request, submission.position):
        return None
    failed = set(failed_of(submission)) - reserved_indices(submission)
    indices = sorted(failed & _by_service(submission, now))
    if not indices:
        return None
    try:
        why = f"Service problem: try {_tries(submission) + 1}."
        return plan_retry(
            submission=submission, request=request, indices=indices, by=PORTAL, at=at, reason=why
        )
    except InvalidFields as error:
        log.warning("%s cannot be retried: %s", submission, error)
        return None


def _by_service(submission: Submission, now: Outlook) -> set[int]:
    """Return the numbers of the jobs that failed because of a service which is not down now."""
    verdicts = Verdict.objects.filter(
        job__in=list(jobs_of(submission).values_list("pk", flat=True)),
        verdict=VerdictKind.SERVICE,
        advice=Advice.RETRY,
    )
    indices = set()
    for job_id, service in verdicts.values_list("job__job_id", "service"):
        if service and now.find_down(service):
            continue
        index = index_of(submission, job_id)
        if index is not None:
            indices.add(index)
    return indices


def _tries(submission: Submission) -> int:
    """Return the number of the attempt that a submission is for its jobs."""
    tries = 1
    while submission.retry_of:
        submission = submission.retry_of
        tries += 1
    return tries
