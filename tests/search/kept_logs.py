"""Jobs with kept logs for tests of the search."""

from collections.abc import Sequence
from datetime import datetime

from apps.clusters.schedulers.base import JobState
from apps.diagnosis.domain.reading.excerpts import excerpt_of
from apps.diagnosis.domain.reading.kept_logs import kept_log
from apps.diagnosis.engine.base import Block
from apps.diagnosis.enums import HarvestState, Stream
from apps.diagnosis.models import LogExcerpt, LogHarvest
from apps.jobs.models import Job
from apps.search.domain.engine.base import Engine
from apps.search.domain.engine.postgresql import PostgresEngine
from apps.search.domain.logs.kept_texts import KeptLog
from tests.factories import clusters
from tests.factories import jobs as job_factory

_POSTGRESQL = PostgresEngine()


def job(number: int, *, at: datetime, **fields: object) -> Job:
    """A failed job that ended at this time."""
    cluster = clusters.cluster("alps")
    values = {"state": JobState.FAILED, "ended_at": at, "submitted_at": at, **fields}
    return job_factory.row(cluster, number, at=at, **values)


def keep_log(row: Job, *logs: bytes, engine: Engine = _POSTGRESQL) -> None:
    """Keep stderr, and stdout if there is a second log, as a harvest does."""
    keep_logs([(row, logs)], engine=engine)


def keep_logs(
    kept: Sequence[tuple[Job, Sequence[bytes]]], *, engine: Engine = _POSTGRESQL
) -> list[KeptLog]:
    """Keep logs, and have them in the index."""
    logs = []
    for row, datas in kept:
        harvest, _ = LogHarvest.objects.update_or_create(
            job=row,
            defaults={
                "state": HarvestState.DONE,
                "due_at": row.ended_at,
                "harvested_at": row.ended_at,
            },
        )
        harvest.excerpts.all().delete()
        excerpts = []
        for stream, data in zip((Stream.STDERR, Stream.STDOUT), datas, strict=False):
            block = Block(data, 0, len(data), 1, stream)
            excerpts.append(excerpt_of(harvest, f"/logs/{row.job_id}.{stream}", block))
        LogExcerpt.objects.bulk_create(excerpts)
        logs.append(kept_log(harvest, excerpts))
    engine.store(logs)
    return logs
