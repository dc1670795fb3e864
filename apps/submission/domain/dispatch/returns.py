"""Whether a started request can return to the queue: only as long as it has no jobs."""

from django.db.models import QuerySet

from apps.jobs.models import Job, QueueCount
from apps.production.domain.lifecycle.transitions import Transition
from apps.production.models import Request
from apps.submission.enums import Purpose, SubmissionState
from apps.submission.models import Submission

_INSTEAD = "Put it on hold to stop new jobs, or cancel it to end it for good."


def refusal_to_return(step: Transition, request: Request) -> str:
    """Return which jobs keep a request from returning to the queue; empty if it has none.

    Planned arrays count: they have scripts of the request as it is, job numbers and input files,
    which a request that is edited in the queue would have to give back.
    """
    arrays = _arrays_of(request)
    if arrays.exclude(state=SubmissionState.PLANNED).exists():
        return f"the portal has submitted jobs for it. {_INSTEAD}"
    if arrays.exists():
        return (
            "jobs are planned for it, although none was submitted yet. Put it on hold, and no "
            "planned job is submitted until you release it."
        )
    if QueueCount.objects.filter(request=request).exists():
        return f"it has jobs in a scheduler. {_INSTEAD}"
    if Job.objects.filter(request_key=request.key, experiment=request.experiment_id).exists():
        return f"it has jobs that ended. {_INSTEAD}"
    return ""


def has_only_planned_jobs(request: Request) -> bool:
    """Return whether jobs of a request are planned, and none was submitted or refused so far."""
    states = set(_arrays_of(request).order_by().values_list("state", flat=True).distinct())
    return states == {SubmissionState.PLANNED}


def _arrays_of(request: Request) -> QuerySet[Submission]:
    return Submission.objects.filter(request=request, purpose=Purpose.PRODUCTION)
