"""Archive and drop the job records of months older than the setting.

Totals and statistics are kept.
"""

import logging
from dataclasses import dataclass
from datetime import date, datetime

from django.conf import settings
from django.db import connection, transaction
from django.db.models import Max, Min, QuerySet

from apps.core.domain.events import publish
from apps.core.domain.locks import exclusive_lock
from apps.core.errors import InvalidTransition
from apps.jobs.domain.months.archive import archive_month, compare, read_manifest
from apps.jobs.domain.months.stores.base import Manifest
from apps.jobs.domain.months.tables import list_links, list_tables
from apps.jobs.domain.records.calendar_months import (
    lock_months,
    month_of,
    months_before,
    next_month,
    start_of,
)
from apps.jobs.models import ArchivedMonth, DirtyHour, Job

log = logging.getLogger(__name__)

#: Jobs deleted in one transaction.
BATCH = 5_000
_THESE = "id = ANY(%(keys)s)"
_DROP_LOCK = 4_716_015


@dataclass(frozen=True)
class MonthOfJobs:
    """A month: its jobs in the database, its archive, and whether it is due to be dropped."""

    month: date
    jobs: int
    archived: ArchivedMonth | None
    is_due: bool


def list_months(*, at: datetime) -> list[MonthOfJobs]:
    """Return the months that have job records or an archive, newest first."""
    archived = {
        archived_month.month: archived_month for archived_month in ArchivedMonth.objects.all()
    }
    ends = Job.objects.aggregate(first=Min("ended_at"), last=Max("ended_at"))
    stored = set()
    if ends["first"]:
        month = month_of(ends["first"])
        while month <= month_of(ends["last"]):
            stored.add(month)
            month = next_month(month)
    months = []
    for month in sorted(stored | archived.keys(), reverse=True):
        jobs = _jobs_of(month).count()
        if jobs or month in archived:
            is_due = bool(jobs) and _is_due(month, archived, at)
            months.append(MonthOfJobs(month, jobs, archived.get(month), is_due))
    return months


def drop_due_months(*, at: datetime) -> int:
    """Archive and drop the oldest due month, or resume dropping one; return the deleted jobs.

    If archiving fails, the error is logged and no other month is tried: the cause is the disk or
    the clock.
    """
    if not settings.JOB_RECORD_MONTHS:
        return 0
    first = Job.objects.aggregate(first=Min("ended_at"))["first"]
    archived = {
        archived_month.month: archived_month for archived_month in ArchivedMonth.objects.all()
    }
    month = month_of(first) if first else None
    while month and month <= _last_due(at):
        if _is_due(month, archived, at) and _jobs_of(month).exists():
            try:
                return drop_month(month=month, by="retention", at=at)
            except (InvalidTransition, OSError) as error:
                log.error("job records of %s are not dropped: %s", f"{month:%Y-%m}", error)
                return 0
        month = next_month(month)
    return 0


def drop_month(*, month: date, by: str, at: datetime) -> int:
    """Archive a month, verify the archive, and delete its job records; return their number.

    Rows that cascade from jobs are deleted too. If the process is killed, the next call deletes the
    remaining records. Raises `InvalidTransition`, `BadArchive`.
    """
    if next_month(month) > month_of(at):
        raise InvalidTransition(f"{month:%Y-%m} is not over.")
    with exclusive_lock(_DROP_LOCK, 0) as alone:
        if not alone:
            raise InvalidTransition("A month is being dropped now. Retry later.")
        if not ArchivedMonth.objects.filter(month=month, dropped_at__isnull=False).exists():
            if not _jobs_of(month).exists():
                raise InvalidTransition(f"{month:%Y-%m} has no job records.")
            archive_month(month=month, at=at)
            # Read back before the transaction, which the store must not hold open.
            _close(month, read_manifest(month), by=by, at=at)
        return _delete(month)


@transaction.atomic
def _close(month: date, manifest: Manifest, *, by: str, at: datetime) -> None:
    """Close a month to new jobs and recounts.

    Checks first that the database has what was archived and that no hour is dirty.
    """
    lock_months()
    waiting = DirtyHour.objects.filter(
        hour__gte=start_of(month), hour__lt=start_of(next_month(month))
    )
    if waiting.exists():
        raise InvalidTransition(f"Hours of {month:%Y-%m} wait to be counted. Retry in a minute.")
    compare(month, manifest)
    keys = _jobs_of(month).aggregate(first=Min("pk"), last=Max("pk"))
    jobs = manifest.tables[Job._meta.db_table].rows
    archived, _ = ArchivedMonth.objects.update_or_create(
        month=month,
        defaults={
            "jobs": jobs,
            "first_id": keys["first"],
            "last_id": keys["last"],
            "archived_at": at,
            "dropped_at": at,
            "restored_at": None,
        },
    )
    publish(kind="job_month.dropped", target=archived, by=by, at=at, data={"jobs": jobs})


def _delete(month: date) -> int:
    """Delete the jobs of a month in batches, with all rows that cascade from them."""
    deleted = 0
    remaining = _jobs_of(month).order_by("ended_at", "pk").values_list("pk", flat=True)
    while keys := list(remaining[:BATCH]):
        with transaction.atomic(), connection.cursor() as cursor:
            for link in list_links(_THESE):
                cursor.execute(
                    (
                        f'UPDATE "{link.table.name}" SET "{link.column}" = NULL WHERE '
                        f"{link.table.condition}"
                    ),
                    {"keys": keys},
                )
            for table in reversed(list_tables(_THESE)):
                cursor.execute(
                    f'DELETE FROM "{table.name}" WHERE {table.condition}', {"keys": keys}
                )
        deleted += len(keys)
    return deleted


def _jobs_of(month: date) -> QuerySet[Job]:
    return Job.objects.filter(
        ended_at__gte=start_of(month), ended_at__lt=start_of(next_month(month))
    )


def _last_due(at: datetime) -> date:
    return months_before(month_of(at), settings.JOB_RECORD_MONTHS + 1)


def _is_due(month: date, archived: dict[date, ArchivedMonth], at: datetime) -> bool:
    restored = month in archived and archived[month].restored_at is not None
    return bool(settings.JOB_RECORD_MONTHS) and month <= _last_due(at) and not restored
