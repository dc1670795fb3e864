"""The start of a request: whether the portal can submit its jobs."""

from dataclasses import replace

from apps.clusters.models import Cluster
from apps.production.domain.requests.status import Status
from apps.production.enums import RequestState
from apps.production.models import Request
from apps.progress.domain.progress import RequestNow
from apps.submission.domain.arrays.submissions import assignment_of

#: States in which someone can choose the cluster that gets the jobs of a request.
_STARTABLE = (RequestState.QUEUED, RequestState.TESTING, RequestState.RUNNING)


def lacks_cluster(request: Request) -> bool:
    """Whether the portal would submit the jobs of a request, if a cluster was chosen for it."""
    if request.state not in _STARTABLE or assignment_of(request) is not None:
        return False
    return Cluster.objects.filter(submits=True).exists()


def waits_for_cluster(request: Request, progress: RequestNow | None) -> bool:
    """Whether a started request cannot get jobs because no cluster is chosen.

    Once it has a job, its jobs are submitted by hand.
    """
    if request.state not in (RequestState.TESTING, RequestState.RUNNING) or progress is None:
        return False
    for stage in progress.stages:
        if stage.row.ended or (stage.waiting and stage.waiting.all):
            return False
    return lacks_cluster(request)


def status_without_cluster(status: Status) -> Status:
    """Return the status of a request that waits for its cluster."""
    return replace(
        status,
        answer="Started, but no cluster is chosen.",
        next_step="Choose a cluster, or submit its jobs by hand.",
    )
