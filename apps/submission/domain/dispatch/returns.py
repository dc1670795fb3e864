"""Whether a started request can return to the queue: only as long as it has no jobs."""

from apps.jobs.models import Job, QueueCount
from apps.production.domain.lifecycle.transitions import Transition
from apps.production.models import Request
from apps.submission.enums import Purpose
from apps.submission.models import Submission


def refusal_to_return(step: Transition, request: Request) -> str:
    """Return which jobs keep a request from returning to the queue; empty if it has none."""
    if Submission.objects.filter(request=request, purpose=Purpose.PRODUCTION).exists():
        return "the portal has planned or submitted jobs for it."
    if QueueCount.objects.filter(request=request).exists():
        return "it has jobs in a scheduler."
    if Job.objects.filter(request_key=request.key, experiment=request.experiment_id).exists():
        return "it has jobs that ended."
    return ""
