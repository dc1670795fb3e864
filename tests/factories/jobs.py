"""Finished jobs for tests, stored as the collector stores them."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from apps.clusters.models import Cluster
from apps.clusters.schedulers.base import JobRecord, JobState
from apps.jobs.domain.collection.accounting import store_records
from apps.jobs.domain.collection.origin import attach_origin
from apps.jobs.domain.totals.rollups import recompute_dirty_hours
from apps.jobs.models import Collection, Job

AT = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)


def record(number: int = 1, **changes: object) -> JobRecord:
    """A completed job of NOvA that ran from 10:05 to 11:05."""
    base = replace(
        bare(number, submitted_at=AT - timedelta(hours=2)),
        started_at=AT - timedelta(hours=1, minutes=55),
        ended_at=AT - timedelta(minutes=55),
        host="node01",
        cpus=2,
        cpu_seconds=5400.0,
        wall_seconds=3600,
        account="nova",
        user="novapro",
        name="reco",
    )
    return replace(base, **changes)


def bare(number: int = 1, *, submitted_at: datetime, **changes: object) -> JobRecord:
    """A completed job of which accounting knows no more than it must;
    it ended an hour after its submission.
    """
    base = JobRecord(
        job_id=str(number),
        raw_id=number,
        spool_id=str(number),
        attempt=1,
        state=JobState.COMPLETED,
        exit_code=0,
        signal=0,
        submitted_at=submitted_at,
        started_at=None,
        ended_at=submitted_at + timedelta(hours=1),
    )
    return replace(base, **changes)


def failed(number: int = 1, **changes: object) -> JobRecord:
    return record(number, **{"state": JobState.FAILED, "exit_code": 1, **changes})


def store(cluster: Cluster, *records: JobRecord, at: datetime = AT) -> list[Job]:
    """Put these records into the database as the collector does,
    and return their rows in the same order.
    """
    Collection.objects.get_or_create(cluster=cluster, defaults={"collected_until": at})
    store_records(cluster=cluster, records=records, at=at)
    rows = Job.objects.filter(cluster=cluster, job_id__in={record.job_id for record in records})
    by_key = {(job.job_id, job.submitted_at, job.attempt): job for job in rows}
    return [by_key[record.job_id, record.submitted_at, record.attempt] for record in records]


def ran(
    cluster: Cluster, key: str, stage: str, *records: JobRecord, at: datetime = AT
) -> list[Job]:
    """The same for jobs of a stage of a request, counted at once."""
    jobs = store(cluster, *records, at=at)
    attach_origin(origins={job.pk: (key, stage) for job in jobs}, at=at)
    recompute_dirty_hours(at=at)
    return jobs


def row(cluster: Cluster, number: int = 1, *, at: datetime, **fields: object) -> Job:
    """The row of a failed job that ended at this moment, and nothing else: no event tells of it,
    no total counts it.
    """
    job = unsaved_row(cluster, number, at=at, **fields)
    job.save(force_insert=True)
    return job


def unsaved_row(cluster: Cluster, number: int = 1, *, at: datetime, **fields: object) -> Job:
    """The same row, to be inserted with others."""
    values = {
        "job_id": str(number),
        "raw_id": number,
        "spool_id": str(number),
        "state": "failed",
        "exit_code": 1,
        "submitted_at": at - timedelta(hours=2),
        "started_at": at - timedelta(hours=1),
        "ended_at": at,
        "host": "wn-0233",
        "wall_seconds": 3600,
        "collected_at": at,
    }
    return Job(cluster=cluster, **{**values, **fields})
