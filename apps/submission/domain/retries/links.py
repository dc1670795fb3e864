"""Links between a failed job and the job that retried it."""

from collections import Counter
from collections.abc import Sequence

from apps.diagnosis.models import Verdict
from apps.jobs.domain.collection.proof import SKEW
from apps.jobs.models import Job
from apps.submission.domain.arrays.submissions import index_of, indices_of, jobs_of, submission_of
from apps.submission.enums import RetryState
from apps.submission.models import RetryBatch, RetryJob


def find_retry(verdict: Verdict) -> Job | None:
    """Return the finished job that the portal submitted in place of a failed one.

    Only for users who can see the failed job.
    """
    job = verdict.job
    if not verdict.retried_as:
        return None
    # IDs are recycled: the first submission after the end is the retry.
    jobs = Job.objects.filter(
        job_id=verdict.retried_as,
        experiment=job.experiment_id,
        submitted_at__gte=job.ended_at - SKEW,
    )
    if verdict.retried_on_id is None:
        jobs = jobs.filter(cluster=job.cluster_id, user=job.user)
    else:  # where the portal may have another account
        jobs = jobs.filter(cluster=verdict.retried_on_id)
    return jobs.select_related("cluster").order_by("submitted_at", "-attempt").first()


def cluster_of_retry(verdict: Verdict) -> int:
    """Return the primary key of the cluster on which the portal retried a job."""
    cluster: int = verdict.retried_on_id or verdict.job.cluster_id
    return cluster


def find_retried_job(job: Job) -> Job | None:
    """Return the failed job that this one retries, for users who can see this one.

    Return None for other jobs.
    """
    retried_task = _find_retried_task(job)
    if retried_task is not None:
        return retried_task

    # The owner of a job can retry it too.
    retries = RetryJob.objects.filter(
        spool_id=job.spool_id,
        as_owner=True,
        job__cluster=job.cluster_id,
        job__experiment=job.experiment_id,
        job__user=job.user,
        sending_at__lte=job.submitted_at + SKEW,
    )
    retry = retries.select_related("job__cluster").last()
    return retry.job if retry else None


def _find_retried_task(job: Job) -> Job | None:
    """Return the task of an earlier array of the portal that this task of its retry repeats."""
    retry = submission_of(job)
    if retry is None or retry.retry_of is None:
        return None

    index = index_of(retry, job.job_id)
    indices = indices_of(retry.retry_of)
    if index is None or index not in indices:
        return None

    job_id = f"{retry.retry_of.spool_id}_{indices.index(index)}"
    jobs = jobs_of(retry.retry_of).filter(job_id=job_id, experiment=job.experiment_id)
    if retry.retry_of.cluster_id == job.cluster_id:  # elsewhere the portal may be another user
        jobs = jobs.filter(user=job.user)
    return jobs.select_related("cluster").first()


def finished_retries(sent_retries: Sequence[RetryJob]) -> dict[int, Job]:
    """Return the finished jobs of retries as owners, by the primary key of the row.

    Takes one query.
    """
    sent = {
        (retry.job.cluster_id, retry.spool_id): retry for retry in sent_retries if retry.spool_id
    }
    cluster_pks = {cluster_pk for cluster_pk, _ in sent}
    spool_ids = {spool_id for _, spool_id in sent}
    jobs = Job.objects.filter(cluster__in=cluster_pks, spool_id__in=spool_ids).select_related(
        "cluster"
    )

    retries: dict[int, Job] = {}
    for job in jobs.order_by("attempt"):
        retry = sent.get((job.cluster_id, job.spool_id))
        if retry and retry.sending_at and job.submitted_at >= retry.sending_at - SKEW:
            retries[retry.pk] = job
    return retries


def count_alike(batch: RetryBatch) -> int:
    """Return how many retries of a batch failed in the most common way, in two queries.

    Retries fail in the same way if their verdicts are in one failure group or, without a group,
    of one category. Retries without a verdict are not counted: their logs are being read.
    """
    failed = Verdict.objects.filter(
        job__in=batch.jobs.filter(state=RetryState.FAILED).values("job")
    ).exclude(retried_as="")
    ended_at = {}
    for verdict in failed.select_related("job"):
        ended_at[cluster_of_retry(verdict), verdict.retried_as] = verdict.job.ended_at

    cluster_pks = {cluster_pk for cluster_pk, _ in ended_at}
    job_ids = {job_id for _, job_id in ended_at}
    verdicts = Verdict.objects.filter(job__cluster__in=cluster_pks, job__job_id__in=job_ids)
    kinds: Counter[tuple[int | None, str]] = Counter()
    for verdict in verdicts.select_related("job"):
        job = verdict.job
        end_of_failed = ended_at.get((job.cluster_id, job.job_id))
        # IDs are recycled: a job submitted before the end of the failed one is not its retry.
        if end_of_failed and job.submitted_at >= end_of_failed - SKEW:
            category = "" if verdict.group_id else verdict.category
            kinds[verdict.group_id, category] += 1
    return max(kinds.values(), default=0)
