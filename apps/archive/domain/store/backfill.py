"""Fill a new sink with the jobs of the store."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256
from pathlib import Path
from typing import Any

from django.db.models import F, QuerySet
from django.db.models.functions import Coalesce

from apps.archive.domain.store.contents import DamagedContent, read_blob
from apps.archive.models import ArchivedJob
from capture.wire.entry import CapturedJob

BATCH_JOBS = 500
BATCH_BYTES = 8 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class JobBatch:
    """Some jobs in order of storage; `last` is the primary key of the last.

    Damaged jobs are only named.
    """

    last: int
    jobs: list[CapturedJob]
    damaged: list[str]


class Position:
    """How far a sink is filled, stored in a file.

    If the file is lost, only time is lost, since sinks store a job once.
    """

    def __init__(self, directory: Path, **what: Any) -> None:
        """Read the position for this combination of sink, cluster and date."""
        self._what = {name: str(value) for name, value in what.items()}
        self._path = directory / f"{sha256(json.dumps(self._what).encode()).hexdigest()[:16]}.json"
        if self._path.exists():
            self.last = int(json.loads(self._path.read_bytes())["last"])
        else:
            self.last = 0

    def move(self, last: int) -> None:
        """Record that all jobs up to `last` are done."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        written = self._path.with_suffix(".new")
        written.write_text(json.dumps({**self._what, "last": last}))
        written.replace(self._path)
        self.last = last


def jobs_after(
    *, last: int, cluster: str = "", since: datetime | None = None
) -> QuerySet[ArchivedJob]:
    """Return the jobs stored after primary key `last`, in that order.

    Jobs are stored one transaction at a time, so none can appear in between later.
    """
    jobs = ArchivedJob.objects.filter(pk__gt=last).order_by("pk")
    if cluster:
        jobs = jobs.filter(cluster__name=cluster)
    return jobs.filter(submitted_at__gte=since) if since else jobs


def read_batches(jobs: QuerySet[ArchivedJob]) -> Iterator[JobBatch]:
    """Read jobs and their contents in batches that fit into memory, at least one job each."""
    size = F("script_bytes") + F("environment_bytes") + Coalesce(F("description__size_bytes"), 0)
    pending: list[int] = []
    total = 0
    for pk, size_bytes in (
        jobs.annotate(size=size).values_list("pk", "size").iterator(chunk_size=5_000)
    ):
        if pending and (len(pending) == BATCH_JOBS or total + size_bytes > BATCH_BYTES):
            yield _batch(pending)
            pending = []
            total = 0
        pending.append(pk)
        total += size_bytes
    if pending:
        yield _batch(pending)


def _batch(keys: Sequence[int]) -> JobBatch:
    archived_jobs = ArchivedJob.objects.filter(pk__in=keys).order_by("pk")
    batch = JobBatch(keys[-1], [], [])
    for archived_job in archived_jobs.select_related(
        "cluster", "script", "environment", "description"
    ):
        try:
            batch.jobs.append(_captured(archived_job))
        except DamagedContent as error:
            batch.damaged.append(f"job {archived_job} is damaged in the archive: it {error}")
    return batch


def _captured(archived_job: ArchivedJob) -> CapturedJob:
    return CapturedJob(
        cluster=archived_job.cluster.name,
        scheduler=archived_job.cluster.scheduler,
        job_id=archived_job.job_id,
        submitted_at=archived_job.submitted_at,
        captured_at=archived_job.captured_at,
        script=read_blob(archived_job.script),
        environment=read_blob(archived_job.environment),
        description=read_blob(archived_job.description) if archived_job.description else b"",
        request_key=archived_job.request_key,
        stage=archived_job.stage,
        masked_names=tuple(archived_job.masked_names),
        arguments=archived_job.arguments,
        user=archived_job.user,
        account=archived_job.account,
        name=archived_job.name,
        caveat=archived_job.caveat,
        sender=archived_job.sender or "",
    )
