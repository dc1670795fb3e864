"""Ends of logs that jobs post with their token: for jobs whose logs no worker can read."""

from collections.abc import Sequence
from datetime import datetime, timedelta

import zstandard
from django.db import transaction

from apps.core.errors import NotAllowed
from apps.diagnosis.engine.base import Block
from apps.diagnosis.engine.secrets import starred
from apps.diagnosis.enums import Stream
from apps.diagnosis.models import PostedLog
from apps.jobs.domain.phases.reports import array_of, check_array
from apps.jobs.domain.phases.tokens import PhaseToken
from apps.jobs.models import Job

#: The largest end of a log that is taken.
MOST_BYTES = 1024 * 1024
#: So many posts of one log are kept, the newest; and so many of one job array.
MOST_OF_A_LOG = 3
MOST_OF_AN_ARRAY = 20_000
#: Clocks of worker nodes and of the portal differ, and a job may post what it wrote last when it has ended.
_AHEAD, _AFTER = timedelta(minutes=1), timedelta(minutes=5)


@transaction.atomic
def store_posted_log(
    *, token: PhaseToken, job_id: str, stream: Stream, offset: int, data: bytes, at: datetime
) -> PostedLog:
    """Keep the end of a log that begins at a byte; of repeated posts the newest ones stay.

    Raises `NotAllowed` if the token is that of another job array, or that array has posted too many.
    """
    check_array(token=token, job_id=job_id)
    array, posted = array_of(job_id), PostedLog.objects.filter(token_label=token.label)
    if posted.exclude(array_id=array).exists():
        raise NotAllowed("This token is in use by another job array. Each needs its own.")
    if posted.count() >= MOST_OF_AN_ARRAY:
        raise NotAllowed(f"The jobs of this array have posted {MOST_OF_AN_ARRAY:,} logs already.")
    row = PostedLog.objects.create(
        cluster_id=token.cluster,
        job_id=job_id,
        array_id=array,
        experiment_id=token.experiment,
        token_label=token.label,
        stream=stream,
        first_offset=offset,
        compressed=zstandard.ZstdCompressor().compress(starred(data)),
        posted_at=at,
    )
    same = posted.filter(cluster=token.cluster, job_id=job_id, stream=stream).order_by("-posted_at", "-pk")
    PostedLog.objects.filter(pk__in=list(same.values_list("pk", flat=True)[MOST_OF_A_LOG:])).delete()
    return row


def posted_by(jobs: Sequence[Job]) -> dict[int, dict[Stream, PostedLog]]:
    """Return what each of these attempts has posted, by id of the job and stream, the newest of each; in one query.

    Only posts for the job's own experiment count, and of the time of the attempt: job IDs are no secret.
    """
    found: dict[int, dict[Stream, PostedLog]] = {job.pk: {} for job in jobs}
    by_id: dict[tuple[int, str], list[Job]] = {}
    for job in jobs:
        by_id.setdefault((job.cluster_id, job.job_id), []).append(job)
    rows = PostedLog.objects.filter(cluster__in={key[0] for key in by_id}, job_id__in={key[1] for key in by_id})
    for row in rows.order_by("posted_at", "pk"):
        for job in by_id.get((row.cluster_id, row.job_id), ()):
            if row.experiment_id == job.experiment_id and _is_of(row, job):
                found[job.pk][Stream(row.stream)] = row
    return found


def _is_of(row: PostedLog, job: Job) -> bool:
    return job.started_at is not None and job.started_at - _AHEAD <= row.posted_at <= job.ended_at + _AFTER


def posted_block(row: PostedLog) -> Block:
    """Return what was posted as the end of a log."""
    data, offset = row.data, row.first_offset
    return Block(data, offset, offset + len(data), None if offset else 1, Stream(row.stream))
