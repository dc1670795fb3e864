"""Questions on archived months: Django's queries, run on the Parquet files of a month."""

import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import date, timedelta
from typing import Any, TypeVar

from django.core.exceptions import EmptyResultSet
from django.db import connection, models
from django.db.models import QuerySet

from apps.accounts.models import Experiment, User
from apps.clusters.models import Cluster, Site
from apps.core.bounded_pool import BoundedPool, BudgetExceeded, PoolBusy
from apps.core.domain.pagination import FoundRows
from apps.core.errors import DomainError
from apps.jobs.domain.months.parquet_sql import FileColumn, FileTable, run
from apps.jobs.domain.months.stores.base import BadArchive, file_name
from apps.jobs.domain.months.stores.chosen import job_archive
from apps.jobs.domain.months.tables import MonthTable, list_tables
from apps.jobs.domain.records.calendar_months import start_of
from apps.jobs.models import ArchivedMonth, Job

M = TypeVar("M", bound=models.Model)

#: Time to fetch the files of a month, to query them, and for all months of a page.
FETCH_SECONDS = 8.0
MONTH_SECONDS = 10.0
PAGE_SECONDS = 10.0
#: The resolution of times in PostgreSQL.
INSTANT = timedelta(microseconds=1)
_ANY_KEY = (1 << 63) - 1
#: Address space of a process. DuckDB itself keeps to `parquet_sql.MEMORY`.
POOL = BoundedPool(memory_bytes=3 * 1024**3)

_TYPES = {
    "bigint": "BIGINT",
    "integer": "INTEGER",
    "double precision": "DOUBLE",
    "boolean": "BOOLEAN",
    "timestamp with time zone": "TIMESTAMPTZ",
    "date": "DATE",
    "bytea": "BLOB",
}


class MonthUnreadable(DomainError):
    """An archived month cannot be read, or not in time; the message says which and why."""


def archived_rows(rows: QuerySet[M], month: date) -> list[M]:
    """Return the rows of a queryset as they are in an archived month.

    It may join only tables that are archived with the month. Arrays are texts, as PostgreSQL
    writes them. Raises `MonthUnreadable`.
    """
    fields = rows.model._meta.concrete_fields
    names = [str(row_field.attname) for row_field in fields]
    converters = [row_field.get_db_converters(connection) for row_field in fields]
    instances = []
    for row in _values(rows, names, month):
        row_values = []
        for value, of_field in zip(row, converters, strict=True):
            row_values.append(_converted(value, of_field))
        instances.append(rows.model.from_db(connection.alias, names, row_values))
    return instances


def _first_jobs(jobs: QuerySet[Job], size: int, month: date) -> list[Job]:
    """Return the first jobs of an ordered queryset.

    They are found by the few columns that the query needs: to read all columns of all jobs of
    a large month takes four times as long.
    """
    keys = [key for (key,) in _values(jobs[:size], ["pk"], month)]
    by_key = {job.pk: job for job in archived_rows(Job.objects.filter(pk__in=keys), month)}
    return [by_key[key] for key in keys]


def _values(rows: QuerySet[M], names: Sequence[str], month: date) -> list[tuple[Any, ...]]:
    selected = rows.select_related(None).values_list(*names)
    try:
        sql, parameters = selected.query.sql_with_params()
    except EmptyResultSet:
        return []
    try:
        with _file_tables(sql, month) as file_tables:
            return POOL.call(run, sql, parameters, file_tables, seconds=MONTH_SECONDS)
    except PoolBusy:
        raise MonthUnreadable(
            "Too many archived months are being read. Try again in a moment."
        ) from None
    except (BadArchive, BudgetExceeded, OSError) as error:
        raise MonthUnreadable(f"The archive of {month:%B %Y} cannot be read: {error}") from None


def _converted(value: Any, converters: Sequence[Any]) -> Any:
    """Return a value as Django would have read it from the database, such as JSON as objects."""
    for convert in converters:
        value = convert(value, None, connection)
    return value


@dataclass
class JobHistory:
    """Reads jobs of archived `months`, newest month first.

    `read` are those that were read; `unreadable` has the reasons of those that could not be.
    """

    months: Sequence[date]
    read: list[date] = field(default_factory=list)
    unreadable: dict[date, str] = field(default_factory=dict)

    def find(self, jobs: QuerySet[Job], size: int) -> FoundRows[Job]:
        """Return the first jobs of a queryset in descending order of their end."""
        end = time.monotonic() + PAGE_SECONDS
        matching: list[Job] = []
        for month in sorted(self.months, reverse=True):
            matching += self._jobs_of(month, jobs, size - len(matching))
            if len(matching) >= size:
                break
            if time.monotonic() > end:
                # The next page begins with the last job before this month.
                return FoundRows(_with_related(matching), (start_of(month) - INSTANT, _ANY_KEY))
        return FoundRows(_with_related(matching))

    def _jobs_of(self, month: date, jobs: QuerySet[Job], size: int) -> list[Job]:
        """Return the first jobs of a month; none if it cannot be read, which is noted."""
        try:
            rows = _first_jobs(jobs, size, month)
        except MonthUnreadable as error:
            self.unreadable[month] = str(error)
            return []
        self.read.append(month)
        for job in rows:
            job.archived_in = month
        return rows


def archived_job(pk: int, *, user: User) -> Job | None:
    """Return an archived job; None if there is none, the user may not see it, or it is unreadable.

    Its `archived_in` is the month.
    """
    visible = Job.objects.visible_to(user).filter(pk=pk)
    for archived in ArchivedMonth.objects.exclude(dropped_at=None).filter(
        first_id__lte=pk, last_id__gte=pk
    ):
        try:
            rows = archived_rows(visible, archived.month)
        except MonthUnreadable:
            # The disk of the archive may be unmounted.
            continue
        if rows:
            rows[0].archived_in = archived.month
            return _with_related(rows)[0]
    return None


def _with_related(jobs: Sequence[Job]) -> list[Job]:
    """Set cluster, experiment and site of archived jobs; what was deleted meanwhile is None."""
    for name, model in (("cluster", Cluster), ("experiment", Experiment), ("site", Site)):
        keys = {getattr(job, f"{name}_id") for job in jobs} - {None}
        there: dict[int, Any] = model._default_manager.in_bulk(keys)
        for job in jobs:
            setattr(job, name, there.get(getattr(job, f"{name}_id")))
    return list(jobs)


@contextmanager
def _file_tables(sql: str, month: date) -> Iterator[list[FileTable]]:
    """Yield the tables of a query; those that the release of the month did not have are empty."""
    needed = [table for table in list_tables() if f'"{table.name}"' in sql]
    store = job_archive()
    names = [table.name for table in needed]
    with store.files(month, names, seconds=FETCH_SECONDS) as paths:
        file_tables = []
        for table in needed:
            path = paths.get(table.name)
            if path is None and table.model is Job:
                raise BadArchive(f"{store.place(month)}/{file_name(table.name)} is missing.")
            file_tables.append(
                FileTable(table.name, tuple(_columns_of(table)), str(path) if path else None)
            )
        yield file_tables


def _columns_of(table: MonthTable) -> Iterable[FileColumn]:
    for column, row_field in table.fields.items():
        default = None
        if not row_field.null and row_field.has_default():
            default = row_field.get_default()
        elif not row_field.null and isinstance(row_field, models.CharField | models.TextField):
            default = ""
        kind = _TYPES.get(row_field.db_type(connection) or "", "VARCHAR")
        yield FileColumn(column, kind, default)
