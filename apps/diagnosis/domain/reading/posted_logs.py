"""Ends of logs that jobs post with their token, for jobs whose logs no worker can read."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import zstandard
from django.conf import settings
from django.db import transaction
from django.db.models import Count, Exists, Min, OuterRef, Q, QuerySet, Subquery, Sum, Value
from django.db.models.functions import Coalesce, Greatest, Length

from apps.archive.models import ArchivedJob
from apps.core.errors import LimitReached, NotAllowed
from apps.diagnosis.engine.base import Block
from apps.diagnosis.engine.evidence.secrets import starred
from apps.diagnosis.enums import Stream
from apps.diagnosis.models import PostedLog
from apps.jobs.domain.phases.reports import array_of, check_array
from apps.jobs.domain.phases.tokens import PhaseToken
from apps.jobs.models import Collection, Job

#: Maximum size of a posted end of a log.
MOST_BYTES = 1024 * 1024
#: Number of posts kept per log, the newest, and maximum number per job array.
MOST_OF_A_LOG = 3
MOST_OF_AN_ARRAY = 20_000
#: Maximum compressed size of the posts of one token, and of one experiment within a day.
MOST_BYTES_OF_A_TOKEN = 256 * 1024 * 1024
MOST_BYTES_A_DAY = 2 * 1024 * 1024 * 1024
#: Minimum size that a post counts as: its row needs space too.
_ROW_BYTES = 4096
_DAY = timedelta(days=1)
_SIZE = Coalesce(Sum(Greatest(Length("compressed"), Value(_ROW_BYTES))), Value(0))
#: Clocks of worker nodes and of the portal differ, and a job may post its last output after it has
#: ended.
_AHEAD = timedelta(minutes=1)
_AFTER = timedelta(minutes=5)


@transaction.atomic
def store_posted_log(
    *, token: PhaseToken, job_id: str, stream: Stream, offset: int, data: bytes, at: datetime
) -> PostedLog:
    """Store the end of a log that starts at byte `offset`; of repeated posts, keep the newest.

    Raises `NotAllowed` if the token belongs to another job array, and `LimitReached` if the array,
    or the jobs of the experiment within a day, have posted too much.
    """
    check_array(token=token, job_id=job_id)
    array = array_of(job_id)
    posted = PostedLog.objects.filter(token_label=token.label)
    if posted.exclude(array_id=array).exists():
        raise NotAllowed("This token is in use by another job array. Each needs its own.")
    _check_limits(posted, token, at)
    posted_log = PostedLog.objects.create(
        cluster_id=token.cluster_id,
        job_id=job_id,
        array_id=array,
        experiment_id=token.experiment_id,
        token_label=token.label,
        stream=stream,
        first_offset=offset,
        compressed=zstandard.ZstdCompressor().compress(starred(data)),
        posted_at=at,
    )
    same = posted.filter(cluster=token.cluster_id, job_id=job_id, stream=stream).order_by(
        "-posted_at", "-pk"
    )
    PostedLog.objects.filter(
        pk__in=list(same.values_list("pk", flat=True)[MOST_OF_A_LOG:])
    ).delete()
    return posted_log


def _check_limits(posted: QuerySet[PostedLog], token: PhaseToken, at: datetime) -> None:
    """Raise `LimitReached` if a token, or its experiment within a day, has posted too much."""
    of_token = posted.aggregate(logs=Count("pk"), size=_SIZE)
    if of_token["logs"] >= MOST_OF_AN_ARRAY:
        raise LimitReached(f"The jobs of this array have posted {MOST_OF_AN_ARRAY:,} logs already.")
    if of_token["size"] >= MOST_BYTES_OF_A_TOKEN:
        raise LimitReached(
            "The logs that the jobs of this array have posted take "
            f"{_megabytes(of_token['size'])} MB compressed. The"
            f" limit of a token is {_megabytes(MOST_BYTES_OF_A_TOKEN)} MB{_until_deleted()}."
        )
    of_day = PostedLog.objects.filter(
        experiment=token.experiment_id, posted_at__gt=at - _DAY
    ).aggregate(size=_SIZE, oldest=Min("posted_at"))
    if of_day["size"] >= MOST_BYTES_A_DAY:
        until = of_day["oldest"] + _DAY
        raise LimitReached(
            "The logs that jobs of this experiment have posted within a day take "
            f"{_megabytes(of_day['size']):,} MB"
            f" compressed. The limit is {_megabytes(MOST_BYTES_A_DAY):,} MB. Try again after"
            f" {until.astimezone(UTC):%d %b %Y %H:%M} UTC.",
            wait_seconds=(until - at).total_seconds(),
        )


def _megabytes(size: int) -> int:
    return size // 1024**2


def _until_deleted() -> str:
    days = settings.LOG_EXCERPT_DAYS
    return f"; posts are deleted after {days} days" if days else ""


def delete_unknown(*, at: datetime) -> int:
    """Delete posts older than a day for jobs that accounting and capture do not know.

    Return their number. Accounting knows a job once it has ended and its records were collected, so
    posts within a day before the last collection stay. All posts stay on a cluster whose accounting
    was never read.
    """
    collected = Collection.objects.filter(cluster=OuterRef("cluster")).values("collected_until")
    jobs = Job.objects.filter(
        cluster=OuterRef("cluster"), job_id=OuterRef("job_id"), experiment=OuterRef("experiment")
    )
    captured = ArchivedJob.objects.filter(
        Q(job_id=OuterRef("job_id")) | Q(job_id=OuterRef("array_id")),
        Q(experiment=None) | Q(experiment=OuterRef("experiment")),
        cluster=OuterRef("cluster"),
    )
    old = PostedLog.objects.filter(posted_at__lt=at - _DAY)
    old = old.filter(posted_at__lt=Subquery(collected) - _DAY)
    return old.exclude(Exists(jobs)).exclude(Exists(captured)).delete()[0]


def posted_by(jobs: Sequence[Job]) -> dict[int, dict[Stream, PostedLog]]:
    """Return the newest post of each of these attempts, by job ID and stream, in one query.

    Only posts for the job's own experiment, within the time of the attempt, count: job IDs are not
    secret.
    """
    posted: dict[int, dict[Stream, PostedLog]] = {job.pk: {} for job in jobs}
    by_id: dict[tuple[int, str], list[Job]] = {}
    for job in jobs:
        by_id.setdefault((job.cluster_id, job.job_id), []).append(job)
    posted_logs = PostedLog.objects.filter(
        cluster__in={key[0] for key in by_id}, job_id__in={key[1] for key in by_id}
    )
    for posted_log in posted_logs.order_by("posted_at", "pk"):
        for job in by_id.get((posted_log.cluster_id, posted_log.job_id), ()):
            if posted_log.experiment_id == job.experiment_id and _is_of(posted_log, job):
                posted[job.pk][Stream(posted_log.stream)] = posted_log
    return posted


def _is_of(posted_log: PostedLog, job: Job) -> bool:
    return (
        job.started_at is not None
        and job.started_at - _AHEAD <= posted_log.posted_at <= job.ended_at + _AFTER
    )


def posted_block(posted_log: PostedLog) -> Block:
    """Return a post as the end of a log."""
    data = posted_log.data
    offset = posted_log.first_offset
    return Block(data, offset, offset + len(data), None if offset else 1, Stream(posted_log.stream))
