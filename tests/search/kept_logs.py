"""Jobs with kept logs for tests of the search."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from itertools import chain

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
    (row,) = jobs({number: {"at": at, **fields}})
    return row


def jobs(fields_by_number: Mapping[int, Mapping[str, object]]) -> list[Job]:
    """Failed jobs that ended at `at`, inserted together."""
    cluster = clusters.cluster("alps")
    rows = []
    for number, fields in fields_by_number.items():
        ended_at = fields["at"]
        values = {"state": JobState.FAILED, "ended_at": ended_at, "submitted_at": ended_at}
        rows.append(job_factory.unsaved_row(cluster, number, **{**values, **fields}))
    return Job.objects.bulk_create(rows)


def keep_log(row: Job, *logs: bytes, engine: Engine = _POSTGRESQL) -> None:
    """Keep stderr, and stdout if there is a second log, as a harvest does."""
    keep_logs([(row, logs)], engine=engine)


def keep_logs(
    kept: Sequence[tuple[Job, Sequence[bytes]]], *, engine: Engine = _POSTGRESQL
) -> list[KeptLog]:
    """Keep logs, and have them in the index."""
    harvests = _harvest([row for row, _ in kept])
    LogExcerpt.objects.filter(harvest__in=harvests.values()).delete()
    excerpts = {}
    for row, datas in kept:
        excerpts[row.pk] = []
        for stream, data in zip((Stream.STDERR, Stream.STDOUT), datas, strict=False):
            block = Block(data, 0, len(data), 1, stream)
            excerpt = excerpt_of(harvests[row.pk], f"/logs/{row.job_id}.{stream}", block)
            excerpts[row.pk].append(excerpt)
    LogExcerpt.objects.bulk_create(chain.from_iterable(excerpts.values()))
    logs = [kept_log(harvests[row.pk], excerpts[row.pk]) for row, _ in kept]
    engine.store(logs)
    return logs


def _harvest(rows: Sequence[Job]) -> dict[int, LogHarvest]:
    """Return the harvests of these jobs, done when they ended."""
    harvests = [
        LogHarvest(job=row, state=HarvestState.DONE, due_at=row.ended_at, harvested_at=row.ended_at)
        for row in rows
    ]
    LogHarvest.objects.bulk_create(
        harvests,
        update_conflicts=True,
        unique_fields=["job"],
        update_fields=["state", "due_at", "harvested_at"],
    )
    return {harvest.job_id: harvest for harvest in harvests}
