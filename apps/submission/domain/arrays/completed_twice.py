"""Jobs that completed although they were retried, and whose retry completed, too.

Accounting may correct a failed job to a completed one after its retry.
"""

from collections import Counter
from collections.abc import Mapping

from apps.clusters.schedulers.base import JobState
from apps.jobs.models import Job
from apps.submission.domain.arrays.submissions import completed_of, indices_of
from apps.submission.enums import Purpose
from apps.submission.models import Submission


def count_completed_twice(
    completed: Mapping[tuple[int, int], int],
) -> Counter[tuple[int, int]]:
    """Return how many jobs of each stage completed twice.

    `completed` has the completed jobs of stages by the request's primary key and the position, as
    accounting counts them. Only stages of which the portal knows fewer are examined.
    """
    retries: dict[tuple[int, int], list[tuple[Submission, Submission]]] = {}
    unknown = Counter(completed)
    arrays = Submission.objects.filter(
        request__in={pk for pk, _ in completed}, purpose=Purpose.PRODUCTION
    ).defer("script", "asked", "last_error", "retry_of__script", "retry_of__asked")
    for array in arrays.select_related("retry_of"):
        key = array.request_id, array.position
        unknown[key] -= array.completed
        if array.retry_of and array.completed:
            retries.setdefault(key, []).append((array.retry_of, array))

    stage_of_job: dict[tuple[int, str], tuple[int, int]] = {}
    for key, arrays_of_stage in retries.items():
        if unknown[key] <= 0:
            continue
        for first, retry in arrays_of_stage:
            done = completed_of(retry)
            for task, number in enumerate(indices_of(first)):
                if number in done:
                    stage_of_job[first.cluster_id, f"{first.spool_id}_{task}"] = key
    if not stage_of_job:
        return Counter()
    jobs = Job.objects.filter(
        request__in={pk for pk, _ in completed},
        job_id__in={job_id for _, job_id in stage_of_job},
        state=JobState.COMPLETED,
    )
    completed_jobs = set(jobs.values_list("cluster", "job_id")) & stage_of_job.keys()
    return Counter(stage_of_job[job] for job in completed_jobs)
