"""Find phases of running jobs that last much longer than usual."""

from datetime import datetime, timedelta

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
        usual = {row[:3]: float(row[3]) for row in cursor.fetchall()}
    if not usual:
        return 0
    stuck: dict[tuple[str, int, str, str], int] = {}
    for phase in (
        open_phases(at=at).filter(stuck_at=None).select_for_update(of=("self",), skip_locked=True)
    ):
        key = phase.experiment_id, phase.stage, phase.name
        limit = max(TIMES * usual.get(key, float("inf")), LEAST.total_seconds())
        if (at - phase.started_at).total_seconds() > limit:
            JobPhase.objects.filter(pk=phase.pk).update(stuck_at=at)
            where = phase.request_key, *key
            stuck[where] = stuck.get(where, 0) + 1

    keys = {request_key for request_key, *_ in stuck if request_key}
    requests = {request.key: request for request in Request.objects.filter(key__in=keys)}
    for (request_key, experiment, stage, name), jobs in sorted(stuck.items()):
        request = requests.get(request_key)
        if request is not None and request.experiment_id == experiment:
            data = {"jobs": jobs, "stage": stage, "phase": name}
            publish(kind="request.jobs_stuck", target=request, by="phases", at=at, data=data)
    return sum(stuck.values())


def stuck_phases(user: User, *, at: datetime) -> QuerySet[JobPhase]:
    """Return stuck phases of running jobs that a user can see, longest first."""
    return (
        open_phases(at=at)
        .visible_to(user)
        .exclude(stuck_at=None)
        .select_related("cluster")
        .order_by("started_at")
    )
