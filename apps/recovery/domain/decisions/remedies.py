"""What the next attempt of a failed job gets, and the bounds that it must keep."""

from collections.abc import Iterable
from dataclasses import dataclass

from apps.clusters.models import Cluster
from apps.core.domain.quantities import round_duration, round_size
from apps.jobs.domain.records.jobs import short_host
from apps.jobs.models import Job
from apps.recovery.domain.rules.definition import Action
from apps.recovery.enums import ActionKind
from apps.submission.domain.arrays.changed_resources import ResourceChanges
from apps.submission.domain.arrays.scripts import events_of_part
from apps.submission.domain.retries.eligibility import RetryCandidate
from apps.submission.domain.retries.other_clusters import OtherClusters

#: The question about a job whose retry would run elsewhere, if it cannot.
NO_PLACE = {
    ActionKind.OTHER_CLUSTER: "No other cluster may be used.",
    ActionKind.AVOID_SITE: "No cluster of another site may be used.",
}
_OF_OWNER = "The portal did not submit the job, so its retry stays on its cluster."
_UNCHANGED = ResourceChanges()


@dataclass(frozen=True, slots=True)
class RequestedResources:
    """What a job is meant to have: the values of its stage, or of its first attempt; 0: unknown.

    `events_per_job` is 0 unless the portal sets it; the failed attempt had one part of
    `events_part` of them.
    `retry_…` are the bounds of its retries that were signed with the request; 0: none.
    """

    memory_bytes: int = 0
    time_limit_seconds: int = 0
    retry_memory_bytes: int = 0
    retry_time_limit_seconds: int = 0
    events_per_job: int = 0
    events_part: int = 0


@dataclass(frozen=True, slots=True)
class Remedy:
    """The changes of the next attempt; or, if they would exceed a bound, the question about it."""

    changes: ResourceChanges = _UNCHANGED
    question: str = ""


def increase(had: int, factor: float) -> int:
    """Return the next memory in bytes or wall time in seconds: the factor times what a job had."""
    return round(had * factor)


def remedy_for(
    action: Action, job: Job, requested: RequestedResources, *, other_cluster: str | None = None
) -> Remedy:
    """Return what an action gives the next attempt of a failed job.

    `other_cluster` is the name of the cluster on which a retry can run instead; empty if there is
    none, None for jobs that the portal did not submit.

    The bound of memory and wall time is the lowest of: `most_factor` times what was requested, the
    bound of the request, and the limit of the cluster. An attempt that already had as much is a
    question.
    """
    match action.kind:
        case ActionKind.AVOID_HOST:
            return _avoid_host(job)
        case ActionKind.OTHER_CLUSTER | ActionKind.AVOID_SITE:
            return _elsewhere(action.kind, job, other_cluster)
        case ActionKind.HALF_EVENTS:
            return _half_events(requested)
        case ActionKind.MORE_MEMORY:
            return _more_memory(action, job, requested)
        case ActionKind.MORE_TIME:
            return _more_time(action, job, requested)
    return Remedy()


def _avoid_host(job: Job) -> Remedy:
    if not job.host:
        return Remedy(question="The host of the failed attempt is not known.")
    return Remedy(ResourceChanges(avoided_hosts=(short_host(job.host),)))


def _elsewhere(kind: ActionKind, job: Job, other_cluster: str | None) -> Remedy:
    if other_cluster is None:
        return Remedy(question=_OF_OWNER)
    if kind == ActionKind.AVOID_SITE and job.site_id is None:
        return Remedy(question="The site of the failed attempt is not known.")
    if not other_cluster:
        return Remedy(question=NO_PLACE[kind])
    return Remedy(ResourceChanges(cluster=other_cluster))


def choose_cluster(
    action: Action, candidate: RetryCandidate, other_clusters: OtherClusters
) -> Cluster | None:
    """Return the cluster on which an action that goes elsewhere retries a job; None if none may."""
    if candidate.submission is None:
        return None
    other_site_id = None
    if action.kind == ActionKind.AVOID_SITE:
        other_site_id = candidate.verdict.job.site_id
    return other_clusters.choose(candidate.submission, other_site_id=other_site_id)


def _half_events(requested: RequestedResources) -> Remedy:
    if not requested.events_per_job:
        return Remedy(question="The portal does not set the number of events of these jobs.")
    part = requested.events_part or 1
    if events_of_part(requested.events_per_job, part) == 1:
        return Remedy(question="It had one event.")
    return Remedy(ResourceChanges(events_part=2 * part))


def _more_memory(action: Action, job: Job, requested: RequestedResources) -> Remedy:
    had = job.requested_memory_bytes
    if not had:
        return Remedy(question="The memory of the failed attempt is not known.")
    bounds = (requested.retry_memory_bytes, job.cluster.max_memory_bytes)
    bound = _lowest_bound(action, requested.memory_bytes or had, bounds)
    more = min(increase(had, action.factor), bound)
    if more <= had:
        return Remedy(question=f"It had {round_size(had)}; the bound is {round_size(bound)}.")
    return Remedy(ResourceChanges(memory_bytes=more))


def _more_time(action: Action, job: Job, requested: RequestedResources) -> Remedy:
    had = job.time_limit_seconds
    if not had:
        return Remedy(question="The time limit of the failed attempt is not known.")
    bounds = (requested.retry_time_limit_seconds, job.cluster.max_wall_seconds)
    bound = _lowest_bound(action, requested.time_limit_seconds or had, bounds)
    more = min(increase(had, action.factor), bound)
    if more <= had:
        return Remedy(
            question=f"It had {round_duration(had)}; the bound is {round_duration(bound)}."
        )
    return Remedy(ResourceChanges(time_limit_seconds=more))


def _lowest_bound(action: Action, requested: int, bounds: Iterable[int | None]) -> int:
    """Return the lowest bound: of the action, or one of the others that are set."""
    lowest = round(requested * action.most_factor)
    for bound in bounds:
        if bound:
            lowest = min(lowest, bound)
    return lowest
