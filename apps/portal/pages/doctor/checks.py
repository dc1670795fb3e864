"""All checks of the doctor, in their order, and what each depends on."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime

from apps.portal.pages.doctor import (
    broker,
    database,
    files,
    job_archive,
    keys,
    processes,
    site,
)
from apps.portal.pages.doctor.findings import DoctorFinding


@dataclass(frozen=True, slots=True)
class DoctorCheck:
    """A check. It is left out if one that it `needs` finds a problem, which says it all.

    With `asks_database` it runs in a transaction with a time limit.
    """

    name: str
    findings: Callable[[datetime], Iterator[DoctorFinding]]
    needs: tuple[str, ...] = ()
    asks_database: bool = False


_SCHEMA = ("PostgreSQL", "migrations")

CHECKS: tuple[DoctorCheck, ...] = (
    DoctorCheck("Python", site.check_python),
    DoctorCheck("PostgreSQL", database.check_server, asks_database=True),
    DoctorCheck("rights", database.check_rights, ("PostgreSQL",), asks_database=True),
    DoctorCheck("migrations", database.check_schema, ("PostgreSQL",), asks_database=True),
    DoctorCheck("PostgreSQL's clock", database.check_clock, ("PostgreSQL",), asks_database=True),
    DoctorCheck("size", database.check_size, _SCHEMA, asks_database=True),
    DoctorCheck("backup", database.check_backup, ("PostgreSQL",), asks_database=True),
    DoctorCheck("Redis", broker.check_broker),
    DoctorCheck("Redis' clock", broker.check_clock, ("Redis",)),
    DoctorCheck("settings", site.check_settings),
    DoctorCheck("keys", keys.check_keys, _SCHEMA, asks_database=True),
    DoctorCheck("secrets", files.check_secret_files),
    DoctorCheck("quotes", files.check_quoting),
    DoctorCheck("directories", files.check_directories),
    DoctorCheck("JOB_ARCHIVE", job_archive.check_store),
    DoctorCheck(
        "archived months", job_archive.check_months, (*_SCHEMA, "JOB_ARCHIVE"), asks_database=True
    ),
    DoctorCheck("shared JOB_ARCHIVE", job_archive.check_hosts, ("Redis", "JOB_ARCHIVE")),
    DoctorCheck("LOG_ROOTS", files.check_log_roots),
    DoctorCheck("answers", site.check_answers),
    DoctorCheck("ready", site.check_ready, (*_SCHEMA, "Redis", "answers")),
    DoctorCheck("processes", processes.check_processes, _SCHEMA, asks_database=True),
    DoctorCheck(
        "messages",
        processes.check_messages,
        (*_SCHEMA, "Redis", "processes"),
        asks_database=True,
    ),
    DoctorCheck("captures", processes.check_captures, _SCHEMA, asks_database=True),
    DoctorCheck("queues", processes.check_queues, _SCHEMA, asks_database=True),
    DoctorCheck("sinks", processes.check_sinks, _SCHEMA, asks_database=True),
    DoctorCheck("search", processes.check_search, _SCHEMA, asks_database=True),
    DoctorCheck("accounting", processes.check_accounting, _SCHEMA, asks_database=True),
    DoctorCheck("mail", site.check_mail),
    DoctorCheck("notices", processes.check_notices, _SCHEMA, asks_database=True),
)
