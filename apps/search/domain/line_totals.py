"""Count by hour how many jobs have each template, whenever something in the hour changed."""

import logging
from datetime import datetime, timedelta
from typing import Any

from django.db import DatabaseError, connection, transaction
from django.db.models.functions import TruncHour
from django.utils import timezone

from apps.jobs.domain.records.calendar_months import without_records
from apps.jobs.domain.totals import rollups
from apps.jobs.enums import FAILED_STATES, Counted
from apps.jobs.models import DirtyHour, Job
from apps.search.domain.indexing.new_logs import follow_corrected
from apps.search.domain.templates import follow_experiments
from apps.search.models import JobTemplates, ReadLogs, TemplateTotals

log = logging.getLogger(__name__)

#: Templates of an experiment that was deleted are left out.
_TEMPLATES = """
SELECT %(hour)s::timestamptz, template.id, counted.stage, counted.failed, counted.good
FROM (
    SELECT key, job.stage,
        count(*) FILTER (WHERE job.state = ANY (%(failed)s)) AS failed,
        count(*) FILTER (WHERE job.state = 'completed') AS good
    FROM jobs_job job JOIN search_jobtemplates read ON read.job_id = job.id
        CROSS JOIN unnest(read.templates) key
    WHERE job.ended_at >= %(hour)s AND job.ended_at < %(end)s
    GROUP BY key, job.stage
) counted JOIN search_linetemplate template ON template.id = counted.key
"""
_LOGS = """
SELECT %(hour)s::timestamptz, job.experiment_id, job.stage,
    count(*) FILTER (WHERE job.state = ANY (%(failed)s)),
    count(*) FILTER (WHERE job.state = 'completed')
FROM jobs_job job JOIN search_jobtemplates read ON read.job_id = job.id
WHERE job.ended_at >= %(hour)s AND job.ended_at < %(end)s
GROUP BY job.experiment_id, job.stage
"""
#: Jobs whose end accounting corrected.
_MOVED_JOBS = """
SELECT read.job_id FROM jobs_job job JOIN search_jobtemplates read ON read.job_id = job.id
WHERE job.ended_at >= %(hour)s AND job.ended_at < %(end)s AND read.ended_at <> job.ended_at
"""
#: End and outcome of jobs that accounting corrected.
_FOLLOW_JOBS = """
UPDATE search_jobtemplates read SET ended_at = job.ended_at, failed = job.failed
FROM (
    SELECT id, ended_at,
        CASE WHEN state = ANY (%(failed)s) THEN true WHEN state = 'completed' THEN false END failed
    FROM jobs_job WHERE ended_at >= %(hour)s AND ended_at < %(end)s
) job
WHERE job.id = read.job_id
    AND (read.ended_at, read.failed) IS DISTINCT FROM (job.ended_at, job.failed)
"""
_STORE = f"""
INSERT INTO search_templatetotals (hour, template_id, stage, failed, good) {_TEMPLATES};
INSERT INTO search_readlogs (hour, experiment_id, stage, failed, good) {_LOGS};
"""


def recount_dirty_hours(*, limit: int = 500) -> int:
    """Recount marked hours, newest first; return how many could be counted.

    An hour that cannot be counted is logged, and costs the others nothing.
    """
    counted = 0
    for hour in rollups.dirty_hours(Counted.LINES, limit=limit):
        try:
            recount_hour(hour=hour)
        except DatabaseError:
            log.exception("lines of %s cannot be counted", hour)
        else:
            counted += 1
    return counted


def recount_hour(*, hour: datetime) -> None:
    """Recount one hour if it is marked. An hour whose job records were dropped keeps its totals.

    Templates first follow their jobs to other experiments.
    """
    ended = Job.objects.filter(ended_at__gte=hour, ended_at__lt=hour + timedelta(hours=1))
    follow_experiments(ended, at=timezone.now())
    with transaction.atomic():
        if not rollups.take_hour(Counted.LINES, hour) or without_records(hour):
            return
        TemplateTotals.objects.filter(hour=hour).delete()
        ReadLogs.objects.filter(hour=hour).delete()
        with connection.cursor() as cursor:
            cursor.execute(_MOVED_JOBS, _values(hour))
            moved = [job for (job,) in cursor.fetchall()]
            cursor.execute(_FOLLOW_JOBS, _values(hour))
            cursor.execute(_STORE, _values(hour))
        follow_corrected(moved, at=timezone.now())


def wrong_hours() -> list[datetime]:
    """Return the hours whose totals differ from a recount, except those marked for a recount."""
    hours = set(TemplateTotals.objects.values_list("hour", flat=True).distinct())
    hours |= set(ReadLogs.objects.values_list("hour", flat=True).distinct())
    ends = JobTemplates.objects.annotate(hour=TruncHour("ended_at"))
    hours |= set(ends.values_list("hour", flat=True).distinct())
    marked = DirtyHour.objects.filter(counts=Counted.LINES).values_list("hour", flat=True)
    wrong = []
    for hour in sorted(hours - set(marked)):
        templates = TemplateTotals.objects.filter(hour=hour)
        logs = ReadLogs.objects.filter(hour=hour)
        stored = (
            set(templates.values_list("hour", "template", "stage", "failed", "good")),
            set(logs.values_list("hour", "experiment", "stage", "failed", "good")),
        )
        counted = (_rows(_TEMPLATES, hour), _rows(_LOGS, hour))
        if stored != counted and not without_records(hour):
            wrong.append(hour)
    return wrong


def _rows(statement: str, hour: datetime) -> set[Any]:
    with connection.cursor() as cursor:
        cursor.execute(statement, _values(hour))
        return set(cursor.fetchall())


def _values(hour: datetime) -> dict[str, Any]:
    return {
        "hour": hour,
        "end": hour + timedelta(hours=1),
        "failed": sorted(state.value for state in FAILED_STATES),
    }
