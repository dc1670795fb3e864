"""Find phases of running jobs that last much longer than usual."""

from collections import Counter
from datetime import datetime, timedelta
from typing import NamedTuple

from django.db import connection, transaction
from django.db.models import Exists, OuterRef, QuerySet

from apps.accounts.models import User
from apps.core.domain.events import publish
from apps.jobs.models import Job, JobPhase, JobQuerySet
from apps.production.models import Request

#: A phase is stuck after this multiple of the 95th percentile for its experiment, stage and name,
#: but never before `LEAST`.
TIMES = 3
LEAST = timedelta(minutes=30)
#: The percentile covers phases of this period, and needs at least `_FEWEST` of them.
_USUAL_OF = timedelta(days=14)
_FEWEST = 20
#: Older open phases are ignored: their jobs will not report again.
_FORGOTTEN = timedelta(days=14)

_USUAL = """
SELECT experiment_id, stage, name,
    percentile_cont(0.95) WITHIN GROUP (ORDER BY extract(epoch FROM ended_at - started_at))
FROM jobs_jobphase WHERE ended_at >= %s AND (experiment_id, stage, name) IN (
    SELECT experiment_id, stage, name FROM jobs_jobphase
    WHERE ended_at IS NULL AND stuck_at IS NULL AND started_at >= %s)
GROUP BY 1, 2, 3 HAVING count(*) >= %s
"""


class _StuckPhase(NamedTuple):
    """A phase in which jobs of a stage are stuck."""

    request_key: str
    experiment_pk: int
    stage: str
    name: str


def open_phases(*, at: datetime) -> JobQuerySet[JobPhase]:
    """Return open phases: the newest phase of each job that has not finished in accounting.

    Only later phases of the same experiment end a phase, because job IDs are no secret.
    """
    later = JobPhase.objects.filter(
        cluster=OuterRef("cluster"),
        job_id=OuterRef("job_id"),
        experiment=OuterRef("experiment"),
        started_at__gt=OuterRef("started_at"),
    )
    finished = Job.objects.filter(
        cluster=OuterRef("cluster"), job_id=OuterRef("job_id"), ended_at__gte=OuterRef("started_at")
    )
    return JobPhase.objects.filter(
        ~Exists(later),
        ~Exists(finished),
        ended_at=None,
        started_at__gte=at - _FORGOTTEN,
        started_at__lte=at,
    )


@transaction.atomic
def find_stuck_phases(*, at: datetime) -> int:
    """Mark open phases that have become stuck, and report them; return how many were marked.

    Each stuck phase is reported once, if its job belongs to a request.
    """
    with connection.cursor() as cursor:
        cursor.execute(_USUAL, [at - _USUAL_OF, at - _FORGOTTEN, _FEWEST])
        usual_seconds: dict[tuple[int, str, str], float] = {}
        for experiment_pk, stage, name, seconds in cursor.fetchall():
            usual_seconds[experiment_pk, stage, name] = float(seconds)
    if not usual_seconds:
        return 0
    stuck: Counter[_StuckPhase] = Counter()
    for phase in (
        open_phases(at=at).filter(stuck_at=None).select_for_update(of=("self",), skip_locked=True)
    ):
        key = phase.experiment_id, phase.stage, phase.name
        limit = max(TIMES * usual_seconds.get(key, float("inf")), LEAST.total_seconds())
        if (at - phase.started_at).total_seconds() > limit:
            JobPhase.objects.filter(pk=phase.pk).update(stuck_at=at)
            stuck[_StuckPhase(phase.request_key, *key)] += 1
    _publish_stuck(stuck, at)
    return stuck.total()


def _publish_stuck(stuck: Counter[_StuckPhase], at: datetime) -> None:
    """Publish how many jobs are in each stuck phase, if they belong to a request."""
    keys = {phase.request_key for phase in stuck if phase.request_key}
    requests = {request.key: request for request in Request.objects.filter(key__in=keys)}
    for phase, jobs in sorted(stuck.items()):
        request = requests.get(phase.request_key)
        if request is not None and request.experiment_id == phase.experiment_pk:
            data = {"jobs": jobs, "stage": phase.stage, "phase": phase.name}
            publish(kind="request.jobs_stuck", target=request, by="phases", at=at, data=data)


def stuck_phases(user: User, *, at: datetime) -> QuerySet[JobPhase]:
    """Return stuck phases of running jobs that a user can see, longest first."""
    return (
        open_phases(at=at)
        .visible_to(user)
        .exclude(stuck_at=None)
        .select_related("cluster")
        .order_by("started_at")
    )
