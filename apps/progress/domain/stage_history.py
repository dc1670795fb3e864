"""Time and memory used by the jobs of each stage, for estimates."""

from datetime import datetime, timedelta
from typing import Any

from django.db import connection, transaction
from django.db.models import Max, Q, Sum

from apps.clusters.schedulers.base import JobState
from apps.jobs.models import HourlyTotals
from apps.production.domain.estimates.figures import QUANTILES
from apps.production.domain.priority.rescoring import forget_sizes
from apps.production.models import Request, Stage, StageHistory
from apps.progress.domain.stored_forecasts import keep_forecasts

#: Only requests with jobs that finished in this period are checked. Older ones no longer change.
LOOK_BACK = timedelta(days=40)

_QUANTILES = f"ARRAY{list(QUANTILES)}"
#: All figures of one request, in one pass over its jobs and one over its days. A day lasts from the
#: start of its first job to the end of its last job, at least an hour, so that short stages get
#: their real pace.
_COUNT = f"""
WITH ended AS (
    SELECT lower(stage) AS name, state = %(completed)s AS good,
        wall_seconds, wall_seconds * cpus AS core_seconds, cpu_seconds,
           max_memory_bytes, started_at, ended_at, date_trunc('day', ended_at, 'UTC') AS day
    FROM jobs_job WHERE request_key = %(key)s AND request_id = %(pk)s AND stage <> ''
), days AS (
    SELECT name, count(*) * 86400.0 / greatest(
        3600, extract(epoch FROM max(ended_at) - min(greatest(coalesce(started_at, ended_at), day)))
    ) AS pace
    FROM ended WHERE good GROUP BY name, day
), paces AS (
    SELECT name, percentile_cont({_QUANTILES}) WITHIN GROUP (ORDER BY pace) AS per_day
    FROM days GROUP BY name
)
SELECT name, count(*) AS attempts, count(*) FILTER (WHERE good) AS completed,
       coalesce(sum(core_seconds), 0)::float AS core_seconds,
       coalesce(sum(wall_seconds) FILTER (WHERE good), 0)::float AS completed_wall_seconds,
       coalesce(sum(cpu_seconds) FILTER (WHERE good), 0)::float AS completed_cpu_seconds,
       coalesce(sum(core_seconds) FILTER (WHERE good), 0)::float AS completed_core_seconds,
       percentile_cont({_QUANTILES}) WITHIN GROUP (ORDER BY wall_seconds) FILTER (WHERE good)
           AS wall_seconds,
       percentile_cont({_QUANTILES}) WITHIN GROUP (ORDER BY max_memory_bytes) FILTER (WHERE good)
           AS memory_bytes,
       percentile_cont(0.99) WITHIN GROUP (ORDER BY wall_seconds) FILTER (WHERE good)
           AS wall_seconds_99,
       percentile_cont(0.99) WITHIN GROUP (ORDER BY max_memory_bytes) FILTER (WHERE good)
           AS memory_bytes_99,
       per_day, max(ended_at) AS last_ended_at,
       max(ended_at) FILTER (WHERE good) AS last_completed_at
FROM ended LEFT JOIN paces USING (name) GROUP BY name, per_day
"""


def count_changed(*, at: datetime) -> int:
    """Recount the requests whose totals have changed, and store their forecasts.

    Return the number of requests.
    """
    recent = (
        HourlyTotals.objects.filter(hour__gte=at - LOOK_BACK)
        .exclude(request_key="")
        .values("request_key")
    )
    totals = (
        HourlyTotals.objects.filter(request_key__in=recent.distinct())
        .exclude(stage="")
        .values("request_key", "experiment_id")
        .annotate(jobs=Sum("jobs"), last=Max("last_ended_at"), core=Sum("core_seconds"))
    )
    now = {}
    for row in totals.order_by():
        now[(row["request_key"], row["experiment_id"])] = (row["jobs"], row["last"], row["core"])
    # The jobs of these stages may be gone from the totals.
    lately = StageHistory.objects.filter(last_ended_at__gte=at - LOOK_BACK)
    requests = Request.objects.filter(
        Q(key__in={key for key, _ in now}) | Q(pk__in=lately.values("request"))
    )
    sums = (
        StageHistory.objects.filter(request__in=requests)
        .order_by()
        .values("request_id")
        .annotate(jobs=Sum("attempts"), last=Max("last_ended_at"), core=Sum("core_seconds"))
    )
    counted = {}
    for stored in sums:
        counted[stored["request_id"]] = (stored["jobs"], stored["last"], round(stored["core"]))
    changed = []
    for request in requests:
        if now.get((request.key, request.experiment_id)) != counted.get(request.pk):
            changed.append(request)
    for request in changed:
        count_request(request=request)
    keep_forecasts(
        at=at, requests=Request.objects.filter(pk__in=[request.pk for request in changed])
    )
    return len(changed)


@transaction.atomic
def count_request(*, request: Request) -> None:
    """Count the jobs of a request by stage, and store the figures with its current stages."""
    Request.objects.select_for_update().get(pk=request.pk)
    stages = {stage.name.lower(): stage for stage in Stage.objects.filter(request=request)}
    rows = [
        _as_history(request, counts, stages.get(counts["name"])) for counts in _count_jobs(request)
    ]
    StageHistory.objects.filter(request=request).delete()
    StageHistory.objects.bulk_create(rows)
    forget_sizes(experiment_id=request.experiment_id)


def _count_jobs(request: Request) -> list[dict[str, Any]]:
    parameters: dict[str, str | int] = {
        "completed": JobState.COMPLETED.value,
        "key": request.key,
        "pk": request.pk,
    }
    with connection.cursor() as cursor:
        cursor.execute(_COUNT, parameters)
        names = [column.name for column in cursor.description]
        return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]


def _as_history(request: Request, counts: dict[str, Any], stage: Stage | None) -> StageHistory:
    """Return the row of a stage. `stage` is None for a stage that only jobs name."""
    for name in ("wall_seconds", "memory_bytes", "per_day"):
        counts[name] = [value for value in counts[name] or () if value is not None]
    history = StageHistory(request=request, experiment_id=request.experiment_id, **counts)
    if stage is not None:
        history.release = stage.release
        history.configuration = stage.configuration
        history.output_dataset = stage.output_dataset
        if stage.events and stage.jobs:
            history.events_per_job = stage.events / stage.jobs
    return history
