"""Read the archive: contents, the job of a page, and integrity checks."""

import hashlib
from collections.abc import Iterable, Iterator
from contextlib import suppress
from datetime import datetime, timedelta
from functools import lru_cache, reduce
from operator import or_

from django.db.models import F, Q, QuerySet
from zstandard import ZstdCompressionDict

from apps.accounts.models import User
from apps.archive.domain.shown_contents import (
    SHOWN_BYTES,
    ShownEnvironment,
    ShownScript,
    show_environment,
    show_script,
)
from apps.archive.domain.store import compression
from apps.archive.enums import BlobKind
from apps.archive.models import ArchivedJob, Blob, Dictionary
from apps.core.errors import DomainError
from apps.jobs.models import Job

#: Maximum difference between the times of the spool and of accounting for one submission.
CLOCK_TOLERANCE = timedelta(seconds=60)


class DamagedContent(DomainError):
    """A stored content is damaged; `archive verify` prints the same message."""


def read_blob(blob: Blob) -> bytes:
    """Return the stored content after checking its hash. Raises `DamagedContent`."""
    try:
        content = compression.decompress(
            bytes(blob.data), _dictionary(blob.dictionary_id), blob.size_bytes
        )
    except ValueError as error:
        raise DamagedContent(f"cannot be decompressed: {error}") from error
    sha256 = hashlib.sha256(content).digest()
    if sha256 != bytes(blob.sha256):
        raise DamagedContent(f"has the hash {sha256.hex()} now")
    return content


def shown_script(job: ArchivedJob) -> ShownScript | None:
    """Return the beginning of a job's script for a page; None if it is damaged."""
    with suppress(DamagedContent):
        return show_script(read_start(job.script, SHOWN_BYTES), size_bytes=job.script_bytes)
    return None


def shown_environment(job: ArchivedJob) -> ShownEnvironment | None:
    """Return the beginning of a job's environment for a page; None if it is damaged."""
    with suppress(DamagedContent):
        return show_environment(
            read_start(job.environment, SHOWN_BYTES), size_bytes=job.environment_bytes
        )
    return None


def read_start(blob: Blob, size_bytes: int) -> bytes:
    """Return the first bytes of a content; a small content is read completely, and so checked.

    Raises `DamagedContent`.
    """
    if blob.size_bytes <= size_bytes:
        return read_blob(blob)
    try:
        return compression.decompress_start(
            bytes(blob.data), _dictionary(blob.dictionary_id), size_bytes
        )
    except ValueError as error:
        raise DamagedContent(f"cannot be decompressed: {error}") from error


@lru_cache(maxsize=32)
def _dictionary(pk: int | None) -> ZstdCompressionDict | None:
    """Return a dictionary; cached, because dictionaries are large, few, and never change."""
    if pk is None:
        return None
    return compression.load_dictionary(bytes(Dictionary.objects.get(pk=pk).data))


def newest_job(
    *, cluster: str, job_id: str, submitted_at: datetime | None = None
) -> ArchivedJob | None:
    """Return the job with this ID: the one submitted last, or at `submitted_at` if given."""
    jobs = ArchivedJob.objects.filter(cluster__name=cluster, job_id=job_id).select_related("script")
    if submitted_at is not None:
        jobs = jobs.filter(submitted_at=submitted_at)
    return jobs.order_by("-submitted_at").first()


def archived_job_for(job: Job) -> ArchivedJob | None:
    """Return the captured submission of a job, by ID and time; None if not captured."""
    jobs = ArchivedJob.objects.filter(
        cluster_id=job.cluster_id,
        job_id=job.spool_id,
        submitted_at__range=(
            job.submitted_at - CLOCK_TOLERANCE,
            job.submitted_at + CLOCK_TOLERANCE,
        ),
    )
    return _submitted_with(job, jobs.select_related("script", "environment", "cluster"))


def archived_jobs_for(jobs: Iterable[Job]) -> dict[int, ArchivedJob]:
    """Return the captures of jobs by the job's primary key, with one query per cluster."""
    by_cluster: dict[int, list[Job]] = {}
    for job in sorted(jobs, key=lambda job: job.cluster_id):
        by_cluster.setdefault(job.cluster_id, []).append(job)

    captures = {}
    for cluster_id, cluster_jobs in by_cluster.items():
        spool_ids = {job.spool_id for job in cluster_jobs}
        rows_by_id: dict[str, list[ArchivedJob]] = {}
        for archived_job in ArchivedJob.objects.filter(cluster_id=cluster_id, job_id__in=spool_ids):
            rows_by_id.setdefault(archived_job.job_id, []).append(archived_job)

        for job in cluster_jobs:
            captured = _submitted_with(job, rows_by_id.get(job.spool_id, ()))
            if captured is not None:
                captures[job.pk] = captured
    return captures


def _submitted_with(job: Job, archived_jobs: Iterable[ArchivedJob]) -> ArchivedJob | None:
    """Return the row of the job's own submission; None if it was not captured.

    Other jobs may have had the same ID. If captures differ, it is the one that a user chose, or
    else the first one stored, which no later one replaces.
    """
    near = [
        archived_job
        for archived_job in archived_jobs
        if abs(archived_job.submitted_at - job.submitted_at) <= CLOCK_TOLERANCE
    ]
    if any(archived_job.conflict for archived_job in near):
        return min(
            near,
            key=lambda archived_job: (
                not archived_job.conflict,
                archived_job.chosen_at is None,
                archived_job.pk,
            ),
        )
    return min(
        near,
        key=lambda archived_job: abs(archived_job.submitted_at - job.submitted_at),
        default=None,
    )


def archived_jobs_for_list(user: User) -> QuerySet[ArchivedJob]:
    """Return the jobs that the user may see, ready for a list; no content is read."""
    return _with_hashes(ArchivedJob.objects.visible_to(user)).select_related(
        "cluster", "experiment"
    )


def jobs_with_keys(keys: QuerySet[ArchivedJob, dict[str, int]]) -> QuerySet[ArchivedJob]:
    """Return the jobs with these primary keys, ready for a list. Access is already checked."""
    return _with_hashes(ArchivedJob.objects.filter(pk__in=keys)).select_related(
        "cluster", "experiment"
    )


def _with_hashes(jobs: QuerySet[ArchivedJob]) -> QuerySet[ArchivedJob]:
    return jobs.select_related("script", "environment").defer("script__data", "environment__data")


def jobs_in_order(*, cluster: str) -> Iterator[ArchivedJob]:
    """Yield every job of a cluster in order of storage; contents are not read."""
    jobs = _with_hashes(ArchivedJob.objects.filter(cluster__name=cluster)).order_by("pk")
    yield from jobs.iterator(chunk_size=2000)


def jobs_with(blob: Blob) -> QuerySet[ArchivedJob]:
    """Return the jobs that have this content."""
    has_it = reduce(or_, (Q(**{kind: blob}) for kind in BlobKind.values))
    return ArchivedJob.objects.filter(has_it).select_related("cluster").order_by("pk")


def wrong_sizes(*, cluster: str = "") -> QuerySet[ArchivedJob]:
    """Return the jobs whose stored sizes differ from the sizes of their contents."""
    if cluster:
        jobs = ArchivedJob.objects.filter(cluster__name=cluster)
    else:
        jobs = ArchivedJob.objects.all()
    wrong = ~Q(script_bytes=F("script__size_bytes")) | ~Q(
        environment_bytes=F("environment__size_bytes")
    )
    return jobs.filter(wrong).select_related("cluster").order_by("pk")


def damaged_blobs(*, cluster: str = "") -> Iterator[tuple[Blob, str]]:
    """Read all contents; yield those that do not match hash or size, with the difference."""
    blobs = Blob.objects.all()
    if cluster:
        jobs = ArchivedJob.objects.filter(cluster__name=cluster)
        blobs = blobs.filter(reduce(or_, (Q(pk__in=jobs.values(kind)) for kind in BlobKind.values)))
    for blob in blobs.iterator(chunk_size=500):
        try:
            read_blob(blob)
        except DamagedContent as difference:
            yield blob, str(difference)
