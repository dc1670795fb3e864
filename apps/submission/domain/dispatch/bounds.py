"""The limit of concurrent jobs that keeps planned jobs of a request from its cluster."""

from contextlib import suppress
from dataclasses import dataclass
from typing import Literal

from django.db.models import Sum

from apps.clusters.schedulers.base import SchedulerError
from apps.production.models import Request
from apps.submission.domain.arrays.rows import options_of
from apps.submission.domain.arrays.submissions import assignment_of, in_flight
from apps.submission.enums import SubmissionState
from apps.submission.models import Submission


@dataclass(frozen=True)
class ReachedLimit:
    """A limit of concurrent jobs, of a request, an experiment or a whole cluster.

    `jobs` are the planned jobs that wait for it.
    """

    scope: Literal["request", "experiment", "cluster"]
    limit: int
    jobs: int
    cluster_name: str


def find_reached_limit(request: Request) -> ReachedLimit | None:
    """Return the limit that the planned jobs of a request have reached; None if there is none."""
    planned = Submission.objects.filter(
        request=request, state=SubmissionState.PLANNED, cluster__submits=True
    )
    first = planned.select_related("cluster").order_by("pk").first()
    if first is None:
        return None
    jobs = planned.aggregate(jobs=Sum("tasks"))["jobs"]
    assignment = assignment_of(request)
    here = Submission.objects.filter(cluster=first.cluster)
    own = Submission.objects.filter(request=request)
    of_experiment = here.filter(request__experiment=request.experiment_id)
    with suppress(SchedulerError):
        options = options_of(first.cluster)
        most = assignment.most_in_flight if assignment else None
        if most and in_flight(own) + min(first.tasks, most) > most:
            return ReachedLimit("request", most, jobs, first.cluster.name)
        most = options.limit_of(request.experiment.key)
        if most < options.most_in_flight and in_flight(of_experiment) + first.tasks > most:
            return ReachedLimit("experiment", most, jobs, first.cluster.name)
        if in_flight(here) + first.tasks > options.most_in_flight:
            return ReachedLimit("cluster", options.most_in_flight, jobs, first.cluster.name)
    return None
