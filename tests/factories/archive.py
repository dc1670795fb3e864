"""Captured jobs for tests, as capture hands them to its sinks."""

from datetime import UTC, datetime, timedelta

from apps.archive.domain.store.jobs import store_jobs
from apps.archive.models import IntakeBatch
from apps.archive.tasks import archive_batches
from apps.clusters.schedulers.base import Identity
from capture.wire.batches import Batch
from capture.wire.entry import CapturedJob
from tests.archive.spool_writer import environment_bytes, script_of

START = datetime(2026, 11, 20, 9, 12, tzinfo=UTC)


def captured_job(job_id=1, *, cluster="alps", minutes=0, **changes) -> CapturedJob:
    values = {
        "cluster": cluster,
        "scheduler": "slurm",
        "job_id": str(job_id),
        "submitted_at": START + timedelta(minutes=minutes),
        "captured_at": START + timedelta(minutes=minutes, seconds=1),
        "script": script_of(int(job_id)),
        "environment": environment_bytes(),
    }
    return CapturedJob(**values | changes)


def with_identity(*jobs):
    return Batch.of([(job, Identity(int(job.job_id), 1)) for job in jobs])


def archive_all() -> None:
    """Do what workers do with all that capture has handed over."""
    while IntakeBatch.objects.exists():
        archive_batches()


def store(*jobs: CapturedJob, at: datetime = START) -> int:
    """Put these jobs into the script store as a worker does; return how many are new."""
    return store_jobs(jobs=jobs, by="capture", at=at)
