"""PostgreSQL: version, rights, clock, schema, size and backups."""

import shutil
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from django.conf import settings
from django.db import DEFAULT_DB_ALIAS, connection

from apps.core.domain.schema import find_faults, summarise
from apps.core.domain.storage import tables_now
from apps.portal.pages.doctor.clock import clock_finding
from apps.portal.pages.doctor.findings import DoctorFinding, ok, problem, warning
from apps.portal.pages.doctor.support import POSTGRESQL, version_finding
from apps.portal.pages.health.backups import newest_dump_at

#: The disk of PostgreSQL is full in fewer days: a warning, a problem.
WARNING_DAYS = 30
PROBLEM_DAYS = 7
#: A dump that is made each night is older than this only if one failed.
BACKUP_HOURS = 48
GIGABYTE = 1_000_000_000

# Tables that the role cannot use, and those that it cannot change, as migrations do.
_RIGHTS = """
SELECT rolsuper, current_user::text,
       has_schema_privilege(current_schema(), 'CREATE'),
       (SELECT count(*) FROM pg_tables WHERE schemaname = current_schema() AND NOT (
            has_table_privilege(quote_ident(schemaname) || '.' || quote_ident(tablename), 'SELECT')
        AND has_table_privilege(quote_ident(schemaname) || '.' || quote_ident(tablename), 'INSERT')
        AND has_table_privilege(quote_ident(schemaname) || '.' || quote_ident(tablename), 'UPDATE')
        AND has_table_privilege(quote_ident(schemaname) || '.' || quote_ident(tablename), 'DELETE')
       )),
       (SELECT count(*) FROM pg_tables WHERE schemaname = current_schema()
        AND NOT pg_has_role(tableowner, 'USAGE'))
FROM pg_roles WHERE rolname = current_user
"""


def check_server(at: datetime) -> Iterator[DoctorFinding]:
    """Check that PostgreSQL answers, accepts changes, and is of a supported version."""
    (in_recovery,) = _row("SELECT pg_is_in_recovery()")
    if in_recovery:
        yield problem(
            "PostgreSQL",
            "a standby, which accepts no changes",
            "Let DATABASE_URL name the primary server.",
        )
        return
    yield ok("PostgreSQL", "answers and accepts changes")
    major, minor = divmod(connection.pg_version, 10_000)  # type: ignore[attr-defined]
    yield version_finding(POSTGRESQL, (major, minor))


def check_clock(at: datetime) -> Iterator[DoctorFinding]:
    """Compare the clock of this host with PostgreSQL's."""
    before = datetime.now(UTC)
    (theirs,) = _row("SELECT clock_timestamp()")
    yield clock_finding("PostgreSQL", theirs=theirs, before=before, after=datetime.now(UTC))


def check_rights(at: datetime) -> Iterator[DoctorFinding]:
    """Check that the role can do what the portal and its migrations do, and not much more."""
    name = "rights in the database"
    row = _row(_RIGHTS)
    role = row[1]
    lacking = []
    if not row[2]:
        lacking.append("cannot create tables")
    if row[3]:
        lacking.append(f"cannot use {row[3]} tables")
    if row[4]:
        lacking.append(f"does not own {row[4]} tables")
    if lacking:
        yield problem(
            name,
            f"role {role} {', '.join(lacking)}",
            f"As a superuser of PostgreSQL, run `ALTER DATABASE … OWNER TO {role}` and `REASSIGN "
            f"OWNED BY … TO {role}` in the portal's database.",
        )
    elif row[0]:
        yield warning(
            name,
            f"role {role} is a superuser",
            f"Run `ALTER ROLE {role} NOSUPERUSER`: owning the database is enough.",
        )
    else:
        yield ok(name, f"role {role} owns the tables and is no superuser")


def check_schema(at: datetime) -> Iterator[DoctorFinding]:
    """Compare migrations and schema with this version, as `migrate --check` does."""
    faults = find_faults(database=DEFAULT_DB_ALIAS)
    if faults:
        yield problem(
            "migrations",
            summarise(faults),
            "Run `opsportal migrate`; if the schema still differs, restore a dump of this version.",
        )
    else:
        yield ok("migrations", "all applied, and the schema fits the models")


def check_size(at: datetime) -> Iterator[DoctorFinding]:
    """Report size and growth; where PostgreSQL's disk can be seen, also when it is full."""
    size_bytes = 0
    daily_bytes = 0.0
    for table in tables_now(at=at):
        size_bytes += table.size_bytes
        daily_bytes += table.daily_bytes or 0
    seen = f"{size_bytes / GIGABYTE:.1f} GB, {daily_bytes / GIGABYTE:+.2f} GB a day"
    free_bytes = _free_bytes()
    if free_bytes is None:
        yield ok("size of the database", f"{seen}; its disk cannot be seen from here")
        return
    seen += f", {free_bytes / GIGABYTE:.1f} GB free"
    yield growth_finding(seen, free_bytes=free_bytes, daily_bytes=daily_bytes)


def growth_finding(seen: str, *, free_bytes: float, daily_bytes: float) -> DoctorFinding:
    """Judge in how many days the disk is full."""
    name = "size of the database"
    if daily_bytes <= 0 or free_bytes / daily_bytes >= WARNING_DAYS:
        return ok(name, seen)
    days = free_bytes / daily_bytes
    judge = problem if days < PROBLEM_DAYS else warning
    return judge(
        name,
        f"{seen}: full in {days:.0f} days",
        "Enlarge the disk, or keep less: /health/storage/ says which setting limits each table.",
    )


def check_backup(at: datetime) -> Iterator[DoctorFinding]:
    """Check the age of the newest dump in BACKUP_DIR, and whether PostgreSQL archives its WAL."""
    archived_at, failed_at = _row(
        "SELECT last_archived_time, last_failed_time FROM pg_stat_archiver"
    )
    if failed_at and (archived_at is None or failed_at > archived_at):
        yield problem(
            "archive of the WAL",
            f"PostgreSQL could not archive at {failed_at:%Y-%m-%d %H:%M} UTC",
            "Read PostgreSQL's log, and correct `archive_command`.",
        )
    elif archived_at:
        yield ok("archive of the WAL", f"last archived at {archived_at:%Y-%m-%d %H:%M} UTC")
    if settings.BACKUP_DIR is not None:
        yield dump_finding(settings.BACKUP_DIR, at)
    elif archived_at is None:
        yield warning(
            "backup",
            "the portal knows of no backup",
            "Make a dump each night and set BACKUP_DIR to its directory (docs/production.md, "
            "*Backup and restore*).",
        )


def dump_finding(directory: Path, at: datetime) -> DoctorFinding:
    """Judge the newest file of a directory of dumps."""
    fix = "Run the nightly `pg_dump`, and read why it failed (docs/production.md)."
    try:
        newest = newest_dump_at(directory)
    except OSError as error:
        return problem(
            "backup",
            f"BACKUP_DIR {directory}: {error.strerror}",
            "Let the portal's user list this directory, or correct BACKUP_DIR.",
        )
    if newest is None:
        return problem("backup", f"no dump in {directory}", fix)
    hours = (at.timestamp() - newest) / 3_600
    seen = f"newest dump in {directory} is {hours:.0f} h old"
    if hours > BACKUP_HOURS:
        return problem("backup", seen, fix)
    return ok("backup", seen)


def _free_bytes() -> int | None:
    """Return the free bytes of PostgreSQL's disk; None if the server or the role hides them."""
    (may_read,) = _row("SELECT pg_has_role('pg_read_all_settings', 'USAGE')")
    host = connection.settings_dict["HOST"]
    is_here = host in ("", "localhost", "127.0.0.1", "::1") or host.startswith("/")
    if not may_read or not is_here:
        return None
    (directory,) = _row("SELECT current_setting('data_directory')")
    try:
        return shutil.disk_usage(directory).free
    except OSError:
        return None


def _row(query: str) -> tuple[Any, ...]:
    with connection.cursor() as cursor:
        cursor.execute(query)
        row = cursor.fetchone()
    return tuple(row)
