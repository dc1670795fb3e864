"""Store phases found in job logs, so that they count in the hourly totals."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from django.db import connection
from django.db.models import QuerySet

from apps.jobs.domain.records.conversion import hour_of
from apps.jobs.domain.totals.rollups import mark_dirty
from apps.jobs.enums import Counted
from apps.jobs.models import Job, LogPhase

_JOB_LOCK = 4_716_046


class MarkedPhase(NamedTuple):
    """A phase with its duration, as marked in a log."""

    name: str
    wall_seconds: int
    failed: bool


def store_log_phases(phases: Mapping[Job, Sequence[MarkedPhase]]) -> None:
    """Replace the log phases of jobs where they differ, in the caller's transaction."""
    stored: dict[int, list[MarkedPhase]] = {job.pk: [] for job in phases}
    columns = ("job_id", *MarkedPhase._fields)
    for job_id, *values in (
        LogPhase.objects.filter(job__in=stored).order_by("number").values_list(*columns)
    ):
        stored[job_id].append(MarkedPhase(*values))
    changed = {job: marked for job, marked in phases.items() if list(marked) != stored[job.pk]}
    if not changed:
        return

    lock_phases_of_jobs((job.cluster_id, job.job_id) for job in changed)
    LogPhase.objects.filter(job__in=changed).delete()
    rows = []
    for job, marked in changed.items():
        for number, phase in enumerate(marked, start=1):
            rows.append(LogPhase(job=job, number=number, **phase._asdict()))
    LogPhase.objects.bulk_create(rows)
    mark_dirty({hour_of(job.ended_at) for job in changed}, Counted.PHASES)


def lock_phases_of_jobs(jobs: Iterable[tuple[int, str]]) -> None:
    """Lock the phases of jobs, by cluster and job ID, until this transaction ends.

    Without the lock, a report and a log harvest that commit at the same time would not see each
    other, and a recount between them would count both.
    """
    names = [f"{cluster}:{job_id}" for cluster, job_id in jobs]
    with connection.cursor() as cursor:
        # Locks are taken in the same order everywhere, to prevent deadlocks.
        cursor.execute(
            "SELECT pg_advisory_xact_lock(%s, key)"
            " FROM (SELECT DISTINCT hashtext(name) AS key FROM unnest(%s::text[]) AS name "
            "ORDER BY key) AS keys",
            [_JOB_LOCK, names],
        )


def mark_log_phases(jobs: QuerySet[Job]) -> None:
    """Mark the hours of jobs with log phases for a recount, in the caller's transaction."""
    ends = (
        jobs.filter(log_phases__isnull=False)
        .order_by()
        .values_list("ended_at", flat=True)
        .distinct()
    )
    mark_dirty({hour_of(ended_at) for ended_at in ends}, Counted.PHASES)
