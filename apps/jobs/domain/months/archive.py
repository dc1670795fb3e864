"""Archive the job records of a month as Parquet, and restore them.

An archived month is a directory with one file per table, named after the table, and `month.json`
with counts and checksums.
"""

import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from datetime import date, datetime
from pathlib import Path

from django.conf import settings
from django.db import connection, transaction

from apps.core.domain.events import publish
from apps.core.errors import InvalidTransition
from apps.jobs.domain.collection.proof import lock_proofs
from apps.jobs.domain.months.parquet import copy_into, write_rows
from apps.jobs.domain.months.tables import Table, count_and_digest, limits, links, tables
from apps.jobs.domain.phases.logs import mark_log_phases
from apps.jobs.domain.records.calendar_months import lock_months, next_month, start_of
from apps.jobs.domain.totals.rollups import mark_dirty
from apps.jobs.enums import Counted
from apps.jobs.models import ArchivedMonth, HourlyTotals, Job

_LOADED = "loaded_rows"
_ALL = "true"


class BadArchive(InvalidTransition):
    """An archived month is missing or incomplete, or its files have changed."""


@dataclass(frozen=True)
class Content:
    """The content of one file: number of rows, PostgreSQL's checksum, and the file's checksum."""

    rows: int
    digest: str
    sha256: str


@dataclass(frozen=True)
class Manifest:
    """The content of `month.json`: the files by table, and the links to archived rows by column.

    A link is a pair of primary keys: of the row that refers to an archived row, and of the archived
    row.
    """

    month: str
    archived_at: str
    tables: dict[str, Content]
    links: dict[str, list[tuple[int, int]]] = field(default_factory=dict)


def directory_of(month: date) -> Path:
    """Return the directory of an archived month."""
    return Path(settings.JOB_ARCHIVE) / f"{month:%Y-%m}"


def archive_month(*, month: date, at: datetime) -> Manifest:
    """Archive a month, then read the files back and compare them with the database.

    Raises `BadArchive` if counts or checksums differ, for example because a job changed meanwhile.
    An existing directory is replaced as the last step.
    """
    final = directory_of(month)
    new = final.with_name(f"{final.name}.new")
    shutil.rmtree(new, ignore_errors=True)
    new.mkdir(parents=True, mode=0o750)
    with transaction.atomic():
        parameters = limits(month)
        contents = {}
        for table in tables():
            path = new / f"{table.name}.parquet"
            write_rows(path, table, parameters)
            with _loaded(table, path) as loaded:
                rows, digest = count_and_digest(loaded, _ALL, {})
            contents[table.name] = Content(rows, digest, _sha256(path))
        manifest = Manifest(f"{month:%Y-%m}", at.isoformat(), contents, _linked(month))
        compare(month, manifest)
    _write(new / "month.json", json.dumps(asdict(manifest), indent=1))
    shutil.rmtree(final, ignore_errors=True)
    new.rename(final)
    return manifest


def compare(month: date, manifest: Manifest) -> None:
    """Raise `BadArchive` unless the database has exactly the rows of the archived month."""
    for table in tables():
        now = count_and_digest(table.name, table.condition, limits(month))
        content = manifest.tables.get(table.name)
        if content is None or now != (content.rows, content.digest):
            raise BadArchive(
                f"{table.name} has changed since {month:%Y-%m} was archived. Archive it again."
            )
    if _linked(month) != manifest.links:
        raise BadArchive(
            f"Links to jobs have changed since {month:%Y-%m} was archived. Archive it again."
        )


def read_manifest(month: date) -> Manifest:
    """Return the manifest of an archived month after checking that its files are unchanged.

    Raises `BadArchive`.
    """
    directory = directory_of(month)
    try:
        raw = json.loads((directory / "month.json").read_text())
        contents = {name: Content(**content) for name, content in raw.pop("tables").items()}
        linked = {}
        for name, pairs in raw.pop("links").items():
            linked[name] = [(key, named) for key, named in pairs]
        manifest = Manifest(**raw, tables=contents, links=linked)
        for name, content in manifest.tables.items():
            if _sha256(directory / f"{name}.parquet") != content.sha256:
                raise BadArchive(
                    f"{directory}/{name}.parquet is not what was written: its checksum differs."
                )
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise BadArchive(f"{directory} cannot be read: {error}") from error
    return manifest


@transaction.atomic
def restore_month(*, month: date, by: str, at: datetime) -> int:
    """Restore the records of a dropped month; return the number of jobs.

    Raises `BadArchive`, `InvalidTransition`. Totals and statistics are kept: they equal a recount
    of the restored jobs. If attempts of the month were stored meanwhile, these are kept too, and
    its hours are recounted.
    """
    lock_months()
    # Experiments and sites must not be deleted while jobs refer to them again.
    lock_proofs(shared=True)
    archived = ArchivedMonth.objects.select_for_update().filter(month=month).first()
    if archived is None or archived.dropped_at is None:
        raise InvalidTransition(f"{month:%Y-%m} is not dropped.")
    manifest = read_manifest(month)
    came_back = {}
    for table in tables():
        if table.name in manifest.tables:
            with _loaded(table, directory_of(month) / f"{table.name}.parquet") as loaded:
                came_back[table.name] = _insert(table, loaded)
    _link_again(manifest)
    if any(rows != manifest.tables[name].rows for name, rows in came_back.items()):
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
    jobs = came_back[Job._meta.db_table]
    publish(kind="job_month.restored", target=archived, by=by, at=at, data={"jobs": jobs})
    return jobs


@contextmanager
def _loaded(table: Table, path: Path) -> Iterator[str]:
    """Yield the name of a temporary table with the rows of a file; new columns get defaults."""
    with connection.cursor() as cursor:
        cursor.execute(
            f'CREATE TEMPORARY TABLE {_LOADED} (LIKE "{table.name}" INCLUDING DEFAULTS) ON '
            "COMMIT DROP"
        )
        copy_into(_LOADED, path, list(table.fields))
        yield _LOADED
        cursor.execute(f"DROP TABLE {_LOADED}")


def _insert(table: Table, loaded: str) -> int:
    """Insert the loaded rows whose required references still exist; return their number."""
    with connection.cursor() as cursor:
        for column, field in table.fields.items():
            if field.remote_field is None:
                continue
            target = field.target_field
            gone = (
                f'"{column}" IS NOT NULL AND NOT EXISTS (SELECT FROM '
                f'"{target.model._meta.db_table}" there '
                f'WHERE there."{target.column}" = {loaded}."{column}")'
            )
            if field.null:
                cursor.execute(f'UPDATE {loaded} SET "{column}" = NULL WHERE {gone}')
            else:
                cursor.execute(f"DELETE FROM {loaded} WHERE {gone}")
        names = ", ".join(f'"{column}"' for column in table.fields)
        cursor.execute(
            f'INSERT INTO "{table.name}" ({names}) SELECT {names} FROM {loaded} ORDER BY '
            f'"{table.key}" '
            "ON CONFLICT DO NOTHING"
        )
        return int(cursor.rowcount)


def _linked(month: date) -> dict[str, list[tuple[int, int]]]:
    """Return links to rows of the month, by column, as pairs of referring and referenced keys."""
    rows = {}
    with connection.cursor() as cursor:
        for link in links():
            table = link.table
            cursor.execute(
                (
                    f'SELECT "{table.key}", "{link.column}" FROM "{table.name}" WHERE '
                    f"{table.condition} ORDER BY 1"
                ),
                limits(month),
            )
            rows[str(link)] = [(key, named) for key, named in cursor.fetchall()]
    return rows


def _link_again(manifest: Manifest) -> None:
    """Restore the links to restored rows that are still empty."""
    with connection.cursor() as cursor:
        for link in links():
            column = f'"{link.column}"'
            target = link.target
            cursor.executemany(
                f'UPDATE "{link.table.name}" SET {column} = %(named)s WHERE '
                f'"{link.table.key}" = %(key)s '
                f'AND {column} IS NULL AND EXISTS (SELECT FROM "{target.name}" WHERE '
                f'"{target.key}" = %(named)s)',
                [{"key": key, "named": named} for key, named in manifest.links.get(str(link), [])],
            )


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _write(path: Path, text: str) -> None:
    with path.open("w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
