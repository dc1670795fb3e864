"""Archive the job records of a month as Parquet, and restore them.

An archived month is one file per table, named after the table, and `month.json` with counts and
checksums. `stores` has the places where months can be.
"""

import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import date, datetime
from pathlib import Path

from django.db import connection, transaction

from apps.core.domain.events import publish
from apps.core.domain.locks import exclusive_lock
from apps.core.errors import InvalidTransition
from apps.jobs.domain.collection.proof import lock_proofs
from apps.jobs.domain.months.parquet import copy_into, write_rows
from apps.jobs.domain.months.stores.base import (
    BadArchive,
    Content,
    Manifest,
    MonthStore,
    check_file,
    file_name,
    sha256_of,
)
from apps.jobs.domain.months.stores.chosen import job_archive
from apps.jobs.domain.months.tables import (
    MonthTable,
    count_and_digest,
    list_links,
    list_tables,
    parameters_of_month,
)
from apps.jobs.domain.phases.logs import mark_log_phases
from apps.jobs.domain.records.calendar_months import lock_months, next_month, start_of
from apps.jobs.domain.totals.rollups import mark_dirty
from apps.jobs.enums import Counted
from apps.jobs.models import ArchivedMonth, HourlyTotals, Job

_LOADED = "loaded_rows"
_ALL = "true"
_ARCHIVE_LOCK = 4_716_052


def archive_month(*, month: date, at: datetime) -> Manifest:
    """Archive a month, after comparing the files that were written with the database.

    Raises `BadArchive` if counts or checksums differ, for example because a job changed meanwhile.
    A former archive of the month is replaced as the last step.
    """
    store = job_archive()
    with _lock_archive_of(month):
        if ArchivedMonth.objects.filter(month=month, dropped_at__isnull=False).exists():
            raise InvalidTransition(
                f"{month:%Y-%m} is dropped: its archive is the only copy. Restore it first."
            )
        new = store.new_directory(month)
        try:
            manifest = _write_files(new, month, at)
            store.put_in_place(month, new, manifest)
        finally:
            shutil.rmtree(new, ignore_errors=True)
    return manifest


def copy_months(source: MonthStore) -> Iterator[date]:
    """Copy the months that only another store has to JOB_ARCHIVE; yield each copied month.

    Raises `BadArchive`, `InvalidTransition`.
    """
    target = job_archive()
    existing = set(target.months())
    for month in source.months():
        if month in existing:
            continue
        with _lock_archive_of(month):
            manifest = source.read_manifest(month)
            new = target.new_directory(month)
            with _checked_files(source, month, manifest) as paths:
                for table, path in paths.items():
                    shutil.copyfile(path, new / file_name(table))
            target.put_in_place(month, new, manifest)
            target.verify(month, manifest)
        yield month


def compare(month: date, manifest: Manifest) -> None:
    """Raise `BadArchive` unless the database has exactly the rows of the archived month."""
    for table in list_tables():
        now = count_and_digest(table.name, table.condition, parameters_of_month(month))
        content = manifest.tables.get(table.name)
        if content is None or now != (content.rows, content.digest):
            raise BadArchive(
                f"{table.name} has changed since {month:%Y-%m} was archived. Archive it again."
            )
    if _read_links(month) != manifest.links:
        raise BadArchive(
            f"Links to jobs have changed since {month:%Y-%m} was archived. Archive it again."
        )


def read_manifest(month: date) -> Manifest:
    """Return the manifest of an archived month after checking that its files are unchanged.

    Raises `BadArchive`.
    """
    store = job_archive()
    manifest = store.read_manifest(month)
    store.verify(month, manifest)
    return manifest


def restore_month(*, month: date, by: str, at: datetime) -> int:
    """Restore the records of a dropped month; return the number of jobs.

    Raises `BadArchive`, `InvalidTransition`. Totals and statistics stay as they are: they equal a
    recount of the restored jobs. If attempts of the month were stored since it was dropped, they
    stay too, and the hours of the month are recounted.
    """
    if not ArchivedMonth.objects.filter(month=month, dropped_at__isnull=False).exists():
        raise InvalidTransition(f"{month:%Y-%m} is not dropped.")
    # Files are fetched before anything is locked. No process replaces the files of a dropped month.
    store = job_archive()
    manifest = store.read_manifest(month)
    with _checked_files(store, month, manifest) as paths:
        return _restore(month, manifest, paths, by=by, at=at)


@transaction.atomic
def _restore(
    month: date, manifest: Manifest, paths: Mapping[str, Path], *, by: str, at: datetime
) -> int:
    lock_months()
    # Experiments and sites must not be deleted while jobs refer to them again.
    lock_proofs(shared=True)
    archived = ArchivedMonth.objects.select_for_update().get(month=month)
    if archived.dropped_at is None:
        raise InvalidTransition(f"{month:%Y-%m} is not dropped.")
    inserted = {}
    for table in list_tables():
        if table.name in paths:
            with _temporary_table(table, paths[table.name]) as loaded:
                inserted[table.name] = _insert(table, loaded)
    _restore_links(manifest)
    if any(rows != manifest.tables[name].rows for name, rows in inserted.items()):
        # Nothing is stored in a dropped month, so its totals still list every hour in which a job
        # ended.
        hours = HourlyTotals.objects.filter(
            hour__gte=start_of(month), hour__lt=start_of(next_month(month))
        )
        mark_dirty(hours.values_list("hour", flat=True), Counted.JOBS, Counted.CAUSES)
        mark_log_phases(
            Job.objects.filter(
                ended_at__gte=start_of(month), ended_at__lt=start_of(next_month(month))
            )
        )
    archived.dropped_at = None
    archived.restored_at = at
    archived.save()
    jobs = inserted[Job._meta.db_table]
    publish(kind="job_month.restored", target=archived, by=by, at=at, data={"jobs": jobs})
    return jobs


@contextmanager
def _lock_archive_of(month: date) -> Iterator[None]:
    """Keep other processes, on any host, from writing the archive of a month.

    Raises `InvalidTransition` if one of them does.
    """
    with exclusive_lock(_ARCHIVE_LOCK, month.year * 100 + month.month) as alone:
        if not alone:
            raise InvalidTransition(f"{month:%Y-%m} is being archived now. Retry later.")
        yield


def _write_files(directory: Path, month: date, at: datetime) -> Manifest:
    """Write a file for each table, read it back and compare it with the database."""
    contents = {}
    with transaction.atomic():
        parameters = parameters_of_month(month)
        for table in list_tables():
            path = directory / file_name(table.name)
            write_rows(path, table, parameters)
            with _temporary_table(table, path) as loaded:
                rows, digest = count_and_digest(loaded, _ALL, {})
            contents[table.name] = Content(rows, digest, sha256_of(path))
        manifest = Manifest(f"{month:%Y-%m}", at.isoformat(), contents, _read_links(month))
        compare(month, manifest)
    return manifest


@contextmanager
def _checked_files(
    store: MonthStore, month: date, manifest: Manifest
) -> Iterator[Mapping[str, Path]]:
    """Yield all files of a month by table, after comparing them with the manifest."""
    with store.files(month, manifest.tables) as paths:
        for table, content in manifest.tables.items():
            name = f"{store.place(month)}/{file_name(table)}"
            if table not in paths:
                raise BadArchive(f"{name} is missing.")
            check_file(paths[table], content, name=name)
        yield paths


@contextmanager
def _temporary_table(table: MonthTable, path: Path) -> Iterator[str]:
    """Yield the name of a temporary table with the rows of a file; new columns get defaults."""
    with connection.cursor() as cursor:
        cursor.execute(
            f'CREATE TEMPORARY TABLE {_LOADED} (LIKE "{table.name}" INCLUDING DEFAULTS) ON '
            "COMMIT DROP"
        )
        copy_into(_LOADED, path, list(table.fields))
        yield _LOADED
        cursor.execute(f"DROP TABLE {_LOADED}")


def _insert(table: MonthTable, loaded: str) -> int:
    """Insert the loaded rows whose required references still exist; return their number."""
    with connection.cursor() as cursor:
        for column, field in table.fields.items():
            if field.remote_field is None:
                continue
            target = field.target_field
            target_is_gone = (
                f'"{column}" IS NOT NULL AND NOT EXISTS (SELECT FROM '
                f'"{target.model._meta.db_table}" target '
                f'WHERE target."{target.column}" = {loaded}."{column}")'
            )
            if field.null:
                cursor.execute(f'UPDATE {loaded} SET "{column}" = NULL WHERE {target_is_gone}')
            else:
                cursor.execute(f"DELETE FROM {loaded} WHERE {target_is_gone}")
        names = ", ".join(f'"{column}"' for column in table.fields)
        cursor.execute(
            f'INSERT INTO "{table.name}" ({names}) SELECT {names} FROM {loaded} ORDER BY '
            f'"{table.key}" '
            "ON CONFLICT DO NOTHING"
        )
        return int(cursor.rowcount)


def _read_links(month: date) -> dict[str, list[tuple[int, int]]]:
    """Return the links to rows of the month by column: pairs of the keys of both rows."""
    rows = {}
    with connection.cursor() as cursor:
        for link in list_links():
            table = link.table
            cursor.execute(
                (
                    f'SELECT "{table.key}", "{link.column}" FROM "{table.name}" WHERE '
                    f"{table.condition} ORDER BY 1"
                ),
                parameters_of_month(month),
            )
            rows[str(link)] = [(key, target_key) for key, target_key in cursor.fetchall()]
    return rows


def _restore_links(manifest: Manifest) -> None:
    """Restore the links to restored rows, where the columns are still empty."""
    with connection.cursor() as cursor:
        for link in list_links():
            column = f'"{link.column}"'
            target = link.target
            pairs = manifest.links.get(str(link), [])
            cursor.executemany(
                f'UPDATE "{link.table.name}" SET {column} = %(target_key)s '
                f'WHERE "{link.table.key}" = %(key)s AND {column} IS NULL '
                f'AND EXISTS (SELECT FROM "{target.name}" WHERE "{target.key}" = %(target_key)s)',
                [{"key": key, "target_key": target_key} for key, target_key in pairs],
            )
