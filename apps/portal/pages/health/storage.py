"""The page of storage: every table, what it grows by, what keeps it, and what it costs today."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta

from django.apps import apps
from django.conf import settings
from django.db import models

from apps.archive.models import RetentionRule
from apps.core.domain.outbox import KEEP as KEEP_DELIVERIES
from apps.core.domain.storage import KEPT as KEEP_SIZES
from apps.core.domain.storage import LEAST_BYTES, TableNow, last_measured, tables_now
from apps.core.models import Work
from apps.datasets.domain.look_ups import KEPT as KEEP_ANSWERS
from apps.hosts.domain.history import KEPT as KEEP_HOST_SPANS
from apps.hosts.domain.probes.probe_jobs import KEPT as KEEP_PROBE_JOBS
from apps.jobs.domain.collection.flagged import KEPT as KEEP_FLAGGED
from apps.notifications.domain.delivery import KEEP_MESSAGES, KEEP_NOTIFICATIONS
from apps.statusboard.domain.monitoring.rules import KEEP as KEEP_PAYLOADS

FOR_EVER = "for ever"
_WITH_JOB = "as long as the job's record"
_WITH_LOG = "as long as the end of the log"
_UNTIL_DONE = "until it is done"


@dataclass(frozen=True, slots=True)
class Growth:
    """What the rows of a table follow from, and how long they are kept."""

    by: str
    kept: str


#: Of tables that no work fills.
BY_PEOPLE = Growth("what people enter", FOR_EVER)
#: Of queues in the database.
BY_WORK = Growth("work that waits", _UNTIL_DONE)


@dataclass(frozen=True, slots=True)
class StoredTable:
    """A table with its growth; `model` is empty for tables of libraries."""

    now: TableNow
    title: str
    model: str
    growth: Growth

    @property
    def yearly_bytes(self) -> float | None:
        """By how much it grows in a year, at the pace of today."""
        return None if self.now.daily_bytes is None else 365 * self.now.daily_bytes


@dataclass(frozen=True)
class StoragePage:
    """What the page of storage shows."""

    tables: list[StoredTable]
    measured: date | None

    @property
    def size_bytes(self) -> int:
        return _size_of(self.tables)

    @property
    def large(self) -> list[StoredTable]:
        """The tables whose growth is measured."""
        return [table for table in self.tables if table.now.size_bytes >= LEAST_BYTES]

    @property
    def small(self) -> list[StoredTable]:
        return [table for table in self.tables if table.now.size_bytes < LEAST_BYTES]

    @property
    def small_bytes(self) -> int:
        return _size_of(self.small)

    @property
    def daily_bytes(self) -> float | None:
        known = [row.now.daily_bytes for row in self.tables if row.now.daily_bytes is not None]
        return sum(known) if known else None


def _size_of(tables: Sequence[StoredTable]) -> int:
    return sum(table.now.size_bytes for table in tables)


def storage_page(*, at: datetime) -> StoragePage:
    """Return all tables, largest first."""
    models_by_table: dict[str, type[models.Model]] = {}
    for of_app in apps.get_models(include_auto_created=True):
        models_by_table.setdefault(of_app._meta.db_table, of_app)
    growth = growth_by_model()
    tables = []
    for now in tables_now(at=at):
        model = models_by_table.get(now.name)
        label = model._meta.label if model else ""
        title = str(model._meta.verbose_name_plural) if model else now.name
        default = BY_PEOPLE
        if model and issubclass(model, Work):
            default = BY_WORK
        tables.append(StoredTable(now, title, label, growth.get(label, default)))
    return StoragePage(tables, last_measured())


def growth_by_model() -> Mapping[str, Growth]:
    """Return the growth of tables that work fills, by model.

    Others have `BY_PEOPLE`, or `BY_WORK` if they are queues.
    """
    archive = _retention_rule()
    excerpts = _days(settings.LOG_EXCERPT_DAYS, "LOG_EXCERPT_DAYS")
    return {
        "jobs.Job": Growth("finished jobs", _months_of_jobs()),
        "jobs.HourlyTotals": Growth("hours, requests and stages with jobs", FOR_EVER),
        "jobs.HourlyEnds": Growth("hours with jobs", FOR_EVER),
        "jobs.StatisticsBlock": Growth("finished jobs, compressed", FOR_EVER),
        "jobs.StatisticsValue": Growth("new hosts, users and other values", FOR_EVER),
        "jobs.JobPhase": Growth("phases that jobs report", FOR_EVER),
        "jobs.LogPhase": Growth("phases in logs", _WITH_JOB),
        "jobs.PhaseTotals": Growth("hours with phases", FOR_EVER),
        "jobs.FlaggedRecord": Growth("wrong job records", _span(KEEP_FLAGGED)),
        "jobs.DirtyHour": Growth("changed jobs", _UNTIL_DONE),
        "diagnosis.LogHarvest": Growth("logs to analyse", _WITH_JOB),
        "diagnosis.LogExcerpt": Growth("analysed logs, compressed", excerpts),
        "diagnosis.Evidence": Growth("known errors in logs", excerpts),
        "diagnosis.PostedLog": Growth("logs that jobs send", excerpts),
        "diagnosis.Verdict": Growth("failed jobs", _WITH_JOB),
        "diagnosis.CauseTotals": Growth("hours and causes of failures", FOR_EVER),
        "diagnosis.DailyCauseTotals": Growth("days and causes of failures", FOR_EVER),
        "diagnosis.FailureGroup": Growth("new kinds of failures", FOR_EVER),
        "diagnosis.SuccessSample": Growth("stages and releases", "the newest 40 of each"),
        "search.JobTemplates": Growth("jobs whose logs were read", _WITH_JOB),
        "search.LineTemplate": Growth("lines that no log had before", FOR_EVER),
        "search.TemplateTotals": Growth("hours, stages and lines", FOR_EVER),
        "search.ReadLogs": Growth("hours and stages", FOR_EVER),
        "search.LogWords": Growth("analysed logs", _WITH_LOG),
        "search.LogToIndex": Growth("analysed logs", _UNTIL_DONE),
        "archive.ArchivedJob": Growth("captured jobs", archive),
        "archive.Blob": Growth("different scripts and environments", archive),
        "archive.ScriptWords": Growth("scripts and days", archive),
        "archive.SinkDelivery": Growth("captured jobs and sinks", _UNTIL_DONE),
        "archive.IntakeBatch": Growth("captured jobs", _UNTIL_DONE),
        "datasets.InputFile": Growth("input files of stages", FOR_EVER),
        "datasets.OutputFile": Growth("output files of stages", FOR_EVER),
        "datasets.KnownDataset": Growth("answers of catalogues", _span(KEEP_ANSWERS)),
        "submission.Submission": Growth("submitted arrays", FOR_EVER),
        "recovery.Decision": Growth("failed jobs that a rule or a person decides on", FOR_EVER),
        "core.Event": Growth("what people and the portal do", FOR_EVER),
        "core.Delivery": Growth("events and subscribers", _span(KEEP_DELIVERIES)),
        "core.TableSize": Growth("days", _span(KEEP_SIZES)),
        "hosts.ProbeJob": Growth("probe jobs", _span(KEEP_PROBE_JOBS)),
        "hosts.HostSpan": Growth("changes of host states", _span(KEEP_HOST_SPANS)),
        "notifications.Message": Growth("mails and webhook calls", _span(KEEP_MESSAGES)),
        "notifications.Notification": Growth("events and their readers", _span(KEEP_NOTIFICATIONS)),
        "statusboard.RawPayload": Growth("payloads of monitoring", _span(KEEP_PAYLOADS)),
        "statusboard.StateInterval": Growth("changes of service states", FOR_EVER),
        "api.KeyedCall": Growth(
            "API calls with a key", f"{settings.IDEMPOTENCY_HOURS} hours (IDEMPOTENCY_HOURS)"
        ),
        "sessions.Session": Growth("logins", "until they expire"),
    }


def _months_of_jobs() -> str:
    months = settings.JOB_RECORD_MONTHS
    if months:
        return f"{months} months (JOB_RECORD_MONTHS), then as Parquet"
    return f"{FOR_EVER}: JOB_RECORD_MONTHS is not set"


def _days(days: int, setting: str) -> str:
    return f"{days} days ({setting})" if days else f"{FOR_EVER}: {setting} is not set"


def _span(span: timedelta) -> str:
    return f"{span.days} days"


def _retention_rule() -> str:
    rules = RetentionRule.objects.count()
    if rules == 0:
        return f"{FOR_EVER}: there is no retention rule"
    return f"by {rules} retention rule{'' if rules == 1 else 's'}"
