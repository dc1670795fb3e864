"""Return a started request to the queue, as long as none of its jobs can be at a scheduler."""

from datetime import datetime

from django.db.models import QuerySet

from apps.clusters.models import Cluster
from apps.core.errors import InvalidTransition
from apps.datasets.domain.ledger import discard_ledgers, has_started_ledger
from apps.jobs.models import Job, QueueCount
from apps.production.domain.lifecycle.transitions import Transition
from apps.production.models import Request
from apps.submission.enums import Purpose, SubmissionState
from apps.submission.models import Assignment, StageScouts, Submission

_INSTEAD = "Put it on hold to stop new jobs, or cancel it to end it for good."
_SUBMITTED = f"the portal has submitted jobs for it, or tried to. {_INSTEAD}"


def refusal_to_return(step: Transition, request: Request) -> str:
    """Return which jobs keep a request from returning to the queue; empty if none does.

    Planned jobs do not: `withdraw_planned` discards them.
    """
    if _arrays_of(request).exclude(pk__in=_never_submitted(request)).exists():
        return _SUBMITTED
    if QueueCount.objects.filter(request=request).exists():
        return f"it has jobs in a scheduler. {_INSTEAD}"
    if Job.objects.filter(request_key=request.key, experiment=request.experiment_id).exists():
        return f"it has jobs that ended. {_INSTEAD}"
    if has_started_ledger(request):
        return f"some of its input files were processed or given up. {_INSTEAD}"
    return ""


def withdraw_planned(*, request: Request, at: datetime) -> int:
    """Discard the planned jobs of a request that returns to the queue; return their number.

    Its arrays, the list of its input files, and what its first jobs were to measure go, so that the
    next start plans everything from the request as it is then. The request is locked, so that
    nothing is planned meanwhile, and then its clusters, as by the worker that claims an array:
    either it has claimed it before, or finds none. Raises `InvalidTransition` in the first case.
    """
    arrays = _arrays_of(request)
    cluster_pks = set(arrays.order_by().values_list("cluster", flat=True))
    list(Cluster.objects.select_for_update().filter(pk__in=cluster_pks).order_by("pk"))
    planned = _never_submitted(request)
    if arrays.exclude(pk__in=planned).exists():
        raise InvalidTransition(f"{request} cannot return to the queue: {_SUBMITTED}")
    jobs = planned_jobs_of(request)
    planned.delete()
    StageScouts.objects.filter(request=request).delete()
    discard_ledgers(request)
    Assignment.objects.filter(request=request).update(
        looked_at=None, listing_error="", listing_failed_since=None, listing_tried_at=None
    )
    return jobs


def planned_jobs_of(request: Request) -> int:
    """Return the number of planned jobs of a request that were never submitted."""
    return sum(_never_submitted(request).values_list("tasks", flat=True))


def has_only_planned_jobs(request: Request) -> bool:
    """Return whether jobs of a request are planned, and none was submitted or refused so far."""
    states = set(_arrays_of(request).order_by().values_list("state", flat=True).distinct())
    return states == {SubmissionState.PLANNED}


def _never_submitted(request: Request) -> QuerySet[Submission]:
    """Return the planned arrays that no one has tried to submit: no scheduler can have them."""
    return _arrays_of(request).filter(state=SubmissionState.PLANNED, attempts=0)


def _arrays_of(request: Request) -> QuerySet[Submission]:
    return Submission.objects.filter(request=request, purpose=Purpose.PRODUCTION)
