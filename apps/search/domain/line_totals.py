"""Count by hour how many jobs have each template, whenever something in the hour changed."""

from datetime import datetime, timedelta
from typing import Any

from django.db import connection, transaction

from apps.jobs.domain.records.calendar_months import without_records
from apps.jobs.domain.totals import rollups
from apps.jobs.enums import Counted
from apps.jobs.models import DirtyHour
from apps.search.models import ReadLogs, TemplateTotals

_HOUR = "read.ended_at >= %(hour)s AND read.ended_at < %(end)s"
_TEMPLATES = f"""
SELECT %(hour)s::timestamptz, template, job.stage,
       count(*) FILTER (WHERE read.failed), count(*) FILTER (WHERE NOT read.failed)
FROM search_jobtemplates read JOIN jobs_job job ON job.id = read.job_id,
     unnest(read.templates) template
WHERE {_HOUR}
GROUP BY template, job.stage
"""
_LOGS = f"""
SELECT %(hour)s::timestamptz, job.experiment_id, job.stage,
       count(*) FILTER (WHERE read.failed), count(*) FILTER (WHERE NOT read.failed)
FROM search_jobtemplates read JOIN jobs_job job ON job.id = read.job_id
WHERE {_HOUR}
GROUP BY job.experiment_id, job.stage
"""
_STORE = f"""
INSERT INTO search_templatetotals (hour, template_id, stage, failed, good) {_TEMPLATES};
INSERT INTO search_readlogs (hour, experiment_id, stage, failed, good) {_LOGS};
"""


def recount_dirty_hours(*, limit: int = 500) -> int:
    """Recount marked hours, newest first; return their number."""
    hours = rollups.dirty_hours(Counted.LINES, limit=limit)
    for hour in hours:
        recount_hour(hour=hour)
    return len(hours)


@transaction.atomic
def recount_hour(*, hour: datetime) -> None:
    """Recount one hour if it is marked. An hour whose job records were dropped keeps its totals."""
    if not rollups.take_hour(Counted.LINES, hour) or without_records(hour):
        return
    TemplateTotals.objects.filter(hour=hour).delete()
    ReadLogs.objects.filter(hour=hour).delete()
    with connection.cursor() as cursor:
        cursor.execute(_STORE, _limits(hour))


def wrong_hours() -> list[datetime]:
    """Return the hours whose totals differ from a recount, except those marked for a recount."""
    marked = DirtyHour.objects.filter(counts=Counted.LINES).values("hour")
    hours = set(TemplateTotals.objects.exclude(hour__in=marked).values_list("hour", flat=True))
    wrong = []
    for hour in sorted(hours):
        stored = TemplateTotals.objects.filter(hour=hour)
        figures = set(stored.values_list("hour", "template", "stage", "failed", "good"))
        if not without_records(hour) and figures != _counted(hour):
            wrong.append(hour)
    return wrong


def _counted(hour: datetime) -> set[Any]:
    with connection.cursor() as cursor:
        cursor.execute(_TEMPLATES, _limits(hour))
        return set(cursor.fetchall())


def _limits(hour: datetime) -> dict[str, datetime]:
    return {"hour": hour, "end": hour + timedelta(hours=1)}
