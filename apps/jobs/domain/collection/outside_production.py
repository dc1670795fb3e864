"""Jobs in the hourly totals that do not count as production: tests and superseded attempts."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from django.db import connection
from django.db.models import Q

from apps.clusters.schedulers.base import JobState
from apps.core.models import Event
from apps.jobs.domain.collection.proof import SKEW
from apps.production.enums import RequestState
from apps.production.models import Request

#: While a request is being tested, none of its jobs count as production.
_NOT_YET = datetime(9000, 1, 1, tzinfo=UTC)

#: Jobs submitted before production, and completed attempts that were followed by another. Both are
#: few and indexed; LATERAL makes PostgreSQL use the indexes for each request.
_COUNT_OUTSIDE_PRODUCTION = """
WITH requests AS (
    SELECT * FROM unnest(
        %(keys)s::text[], %(experiments)s::bigint[],
        %(begins)s::timestamptz[], %(tested)s::timestamptz[]
    ) AS requests(key, experiment, begins, tested)
)
SELECT requests.key, early.* FROM requests, LATERAL (
    SELECT stage, count(*) FILTER (WHERE state = %(completed)s), count(*) FILTER (
        WHERE state = %(completed)s AND NOT EXISTS (
            SELECT FROM jobs_job later
            WHERE later.cluster_id = job.cluster_id AND later.job_id = job.job_id
                AND later.submitted_at = job.submitted_at AND later.attempt > job.attempt
        )
    ), count(*) FILTER (WHERE attempt = 1)
    FROM jobs_job job
    WHERE request_key = requests.key AND request_key <> '' AND experiment_id = requests.experiment
        AND submitted_at < coalesce(requests.tested, requests.begins)
        AND (submitted_at < requests.begins OR ended_at < requests.tested)
    GROUP BY stage
) early
UNION ALL
SELECT requests.key, followed.* FROM requests, LATERAL (
    SELECT job.stage, count(DISTINCT job.id), 0, 0
    FROM jobs_job later
    JOIN jobs_job job USING (cluster_id, job_id, submitted_at, request_key, experiment_id)
    WHERE request_key = requests.key AND later.request_key <> ''
        AND experiment_id = requests.experiment
        AND (requests.begins IS NULL
            OR submitted_at >= requests.begins AND (job.ended_at >= requests.tested) IS NOT FALSE)
        AND later.attempt > 1 AND later.attempt > job.attempt AND job.state = %(completed)s
    GROUP BY job.stage
) followed
"""


@dataclass(frozen=True)
class JobsOutsideProduction:
    """Jobs of a stage that are not production.

    `completed` are completed attempts, `tests` completed jobs, `ended` finished jobs.
    """

    completed: int = 0
    tests: int = 0
    ended: int = 0


def count_outside_production(
    requests: Sequence[Request],
) -> dict[tuple[str, str], JobsOutsideProduction]:
    """Return the jobs to subtract from totals, by request key and lower-case stage name."""
    if not requests:
        return {}
    starts = _production_starts(requests)
    values: dict[str, Any] = {"keys": [], "experiments": [], "begins": [], "tested": []}
    for request in requests:
        start, tested = starts.get(request.pk, (None, None))
        values["keys"].append(request.key)
        values["experiments"].append(request.experiment_id)
        values["begins"].append(start)
        values["tested"].append(tested)
    values["completed"] = JobState.COMPLETED.value
    sums: dict[tuple[str, str], JobsOutsideProduction] = {}
    with connection.cursor() as cursor:
        cursor.execute(_COUNT_OUTSIDE_PRODUCTION, values)
        for key, stage, completed, tests, ended in cursor.fetchall():
            before = sums.get((key, stage.casefold()), JobsOutsideProduction())
            sums[key, stage.casefold()] = JobsOutsideProduction(
                before.completed + completed, before.tests + tests, before.ended + ended
            )
    return sums


def _production_starts(requests: Sequence[Request]) -> dict[int, tuple[datetime, datetime | None]]:
    """Return the start of production of each request, less `SKEW`, and the end of its test, if any.

    Production starts after the last test, or when the request last entered the queue. A test that
    ended before the start remains a test even if it was submitted within `SKEW` of it. Schedulers
    record whole seconds: a job that ended in the second of the start is production.
    """
    moves = Event.objects.filter(
        Q(old=RequestState.TESTING) | Q(new__in=(RequestState.QUEUED, RequestState.TESTING)),
        target_type=Request._meta.label_lower,
        target_id__in=[str(request.pk) for request in requests],
    )
    moves = moves.order_by("target_id", "-pk").distinct("target_id")
    starts: dict[int, tuple[datetime, datetime | None]] = {}
    for move in moves:
        if move.new == RequestState.TESTING:
            starts[int(move.target_id)] = (_NOT_YET, None)
        else:
            tested = None
            if move.old == RequestState.TESTING:
                tested = move.at.replace(microsecond=0)
            starts[int(move.target_id)] = (move.at - SKEW, tested)
    return starts
