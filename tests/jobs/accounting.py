"""A scheduler whose accounting the test writes, and job rows made the way real ones are."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from apps.clusters.models import Cluster
from apps.clusters.schedulers.base import JobRecord, JobState, LogPaths, SchedulerError
from apps.jobs.domain.collection import store_records
from apps.jobs.models import Collection, Job

AT = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)


class Planned:
    """Answers with the records that a test has put into `records`; raises `fault` after `fault_after` of them."""

    name = "planned"
    records: list[JobRecord] = []
    asked: list[tuple[datetime, datetime]] = []
    fault: Exception | None = None
    fault_after = 0

    def __init__(self, cluster: str, options: Mapping[str, str]) -> None:
        if options.get("broken"):
            raise ValueError("option broken is set")
        self.cluster = cluster

    def spool(self, directory: Path) -> None:
        raise SchedulerError("has none")

    def finished_jobs(self, *, since: datetime, until: datetime) -> Iterator[JobRecord]:
        self.asked.append((since, until))
        given = 0
        for record in self.records:
            if since <= record.ended_at < until:
                if self.fault and given >= self.fault_after:
                    raise self.fault
                given += 1
                yield record

    def log_paths(self, record: JobRecord, *, script: bytes, environment: Mapping[str, str]) -> LogPaths | None:
        if not script:
            return None
        return LogPaths(Path("/data/out.log"), Path("/data/err.log"), "derived")


def record(number: int = 1, **changes: object) -> JobRecord:
    """A completed job of NOvA that ran from 10:05 to 11:05."""
    base = JobRecord(
        job_id=str(number),
        raw_id=number,
        spool_id=str(number),
        attempt=1,
        state=JobState.COMPLETED,
        exit_code=0,
        signal=0,
        submitted_at=AT - timedelta(hours=2),
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


def failed(number: int = 1, **changes: object) -> JobRecord:
    return record(number, **{"state": JobState.FAILED, "exit_code": 1, **changes})


def store(cluster: Cluster, *records: JobRecord, at: datetime = AT) -> list[Job]:
    """Put these records into the database as the collector does, and return their rows in the same order."""
    Collection.objects.get_or_create(cluster=cluster, defaults={"collected_until": at})
    store_records(cluster=cluster, records=records, at=at)
    return [
        Job.objects.get(cluster=cluster, job_id=r.job_id, submitted_at=r.submitted_at, attempt=r.attempt)
        for r in records
    ]
