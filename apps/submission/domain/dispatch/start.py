"""Automatic start of the first request in the queue that has capacity and no obstacle."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db import transaction
from django.db.models import Q

from apps.accounts.models import Experiment
from apps.clusters.models import Cluster
from apps.clusters.schedulers.base import SchedulerError
from apps.clusters.schedulers.options import SubmissionOptions
from apps.core.domain.events import events_of
from apps.core.errors import DomainError
from apps.production.domain.content.stages import with_stages
from apps.production.domain.holds import experiments_on_hold, hold_of
from apps.production.domain.lifecycle.moves import make_move
from apps.production.domain.outlook import Outlook, read_outlook
from apps.production.domain.priority.free_clusters import FreeCluster, Room, exceeded_limit
from apps.production.domain.priority.ranks import rank_of, startable_requests
from apps.production.enums import PORTAL, RequestState, Verb
from apps.production.models import Request, Stage
from apps.submission.domain.arrays.assignment import choose_cluster
from apps.submission.domain.arrays.files import (
    check_files,
    check_merges,
    stages_with_files,
    takes_files,
)
from apps.submission.domain.arrays.rows import options_of, plans_of
from apps.submission.domain.arrays.submissions import (
    arrays_to_submit,
    assignment_of,
    in_flight,
)
from apps.submission.domain.dispatch.dispatch import exceeds, has_room
from apps.submission.enums import IN_SCHEDULER
from apps.submission.models import Assignment, FilesCheck, Submission

#: How many requests of the queue one run considers.
MOST_LOOKED_AT = 100
#: An unchanged result about the files of a request is stored again after this time.
_NOTED_EVERY = timedelta(minutes=1)
#: The last event of these decides whether a request starts without a person.
_KINDS = (
    "request.fail_test",
    "request.return_to_queue",
    "request.change",
    "request.edited",
    "request.queue",
)


def start_next(*, cluster: Cluster, at: datetime) -> Request | None:
    """Start the first request in the queue that can start on a cluster, with its test.

    Return None if there is none. Requests on hold, advised against, or of an experiment that has
    reached its limit keep their rank and are skipped. Raises `SchedulerError` for invalid options.
    """
    options = options_of(cluster)
    for request in requests_to_start(cluster, at):
        if _begin(request, cluster, options, at):
            return request
    return None


def requests_to_start(cluster: Cluster, at: datetime) -> Iterator[Request]:
    """Yield the requests that can start on a cluster now, in the order of the queue.

    There are none if the cluster has no capacity. It asks catalogues and stores what they answer,
    so pages must not call it.
    """
    options = options_of(cluster)
    if cluster.submits and options.automatic and has_room(cluster=cluster, at=at):
        outlook = read_outlook(at)
        for request in _candidates(cluster, options, at):
            if not _local_obstacle(request, cluster, outlook) and not _look_at_files(request, at):
                yield request


def free_clusters(*, at: datetime) -> list[FreeCluster]:
    """Return the clusters that start requests automatically and have room for another one."""
    free = []
    for cluster in Cluster.objects.filter(submits=True).order_by("pk"):
        with suppress(SchedulerError):
            options = options_of(cluster)
            if options.automatic and has_room(cluster=cluster, at=at):
                free.append(_as_free_cluster(cluster, options))
    return free


def _as_free_cluster(cluster: Cluster, options: SubmissionOptions) -> FreeCluster:
    here = Submission.objects.filter(cluster=cluster, state__in=IN_SCHEDULER, settled_at=None)
    keys = set(here.order_by().values_list("request__experiment__key", flat=True).distinct())
    of_experiments = {}
    for key in sorted(keys | set(options.in_flight)):
        jobs_in_flight = in_flight(here.filter(request__experiment__key=key))
        of_experiments[key] = options.limit_of(key) - jobs_in_flight
    most = options.most_in_flight
    room = Room(
        jobs=most - in_flight(here),
        of_others=min(options.experiment_in_flight or most, most),
        of_experiments=of_experiments,
    )
    return FreeCluster(
        cluster.name,
        room,
        cluster.max_memory_bytes,
        cluster.max_wall_seconds,
        tuple(options.experiments),
        has_tests=bool(options.test_events),
    )


def _look_at_files(request: Request, at: datetime) -> str:
    """Ask the catalogue for the files of a request; store and return why it cannot start."""
    if not takes_files(request) and not stages_with_files(request):
        return ""
    error = ""
    try:
        check_files(request)
    except DomainError as reason:
        error = str(reason)
    values = {"version": request.version, "error": error}
    same = FilesCheck.objects.filter(request=request, **values)
    if not same.filter(checked_at__gt=at - _NOTED_EVERY).exists():
        FilesCheck.objects.update_or_create(request=request, defaults={**values, "checked_at": at})
    return error


def files_check_of(request: Request) -> FilesCheck | None:
    """Return what a worker stored about the files of this version of a request, or None."""
    check: FilesCheck | None = getattr(request, "files_check", None)
    return check if check is not None and check.version == request.version else None


def find_obstacle(request: Request, cluster: Cluster, outlook: Outlook) -> str:
    """Return what prevents the automatic start of a request on a cluster, except capacity.

    Empty if nothing does. No catalogue is asked: the answer that a worker stored counts.
    """
    reason = _local_obstacle(request, cluster, outlook)
    check = files_check_of(request)
    return reason or (check.error if check else "")


def _local_obstacle(request: Request, cluster: Cluster, outlook: Outlook) -> str:
    """Return what prevents the start, as far as the portal knows without a catalogue."""
    stages = list(request.stages.all())
    if held := hold_of(request, stages[0] if stages else None):
        return f"{held.what} is on hold: {held.reason}"
    last = events_of(request).filter(kind__in=_KINDS).values_list("kind", flat=True).last()
    if last == "request.fail_test":
        return "its test failed. It starts again once it is changed, or when someone starts it."
    if last == "request.return_to_queue":
        return (
            "it was returned to the queue. It starts again once it is changed, or when someone "
            "starts it."
        )
    if against := outlook.against(request, stages) or _too_large(stages, cluster):
        return against
    try:
        plans_of(request)
        check_merges(request)
    except DomainError as error:
        return str(error)
    return ""


def _too_large(stages: Sequence[Stage], cluster: Cluster) -> str:
    limit = exceeded_limit(stages, cluster)
    if limit == "memory":
        return f"{cluster} does not have enough memory for one job."
    if limit == "wall time":
        return f"{cluster} does not allow jobs of this length."
    return ""


def _candidates(cluster: Cluster, options: SubmissionOptions, at: datetime) -> Iterator[Request]:
    """Yield queued requests for a cluster whose experiment is not on hold or at its limit."""
    held = experiments_on_hold()
    if None in held:
        return
    candidates = with_stages(
        startable_requests().filter(Q(assignment=None) | Q(assignment__cluster=cluster))
    )
    candidates = candidates.exclude(experiment__in=held)
    if options.experiments:
        candidates = candidates.filter(experiment__key__in=options.experiments)

    full: dict[int, bool] = {}
    for request in candidates.select_related("assignment")[:MOST_LOOKED_AT]:
        key = request.experiment_id
        if key not in full:
            full[key] = _is_full(cluster, request.experiment, options, at)
        if not full[key]:
            yield request


def _is_full(
    cluster: Cluster, experiment: Experiment, options: SubmissionOptions, at: datetime
) -> bool:
    """Return whether an experiment has reached its limit, or does so with its next array."""
    limit = options.limit_of(experiment.key)
    of_experiment = Submission.objects.filter(cluster=cluster, request__experiment=experiment)
    jobs_in_flight = in_flight(of_experiment)
    if jobs_in_flight >= limit:
        return True
    next_array = arrays_to_submit(cluster, at).filter(request__experiment=experiment).first()
    return next_array is not None and exceeds(next_array, jobs_in_flight, limit=limit)


def _begin(request: Request, cluster: Cluster, options: SubmissionOptions, at: datetime) -> bool:
    """Choose the cluster and make the move, unless someone else has moved the request."""
    verb = Verb.TEST if options.test_events else Verb.START
    try:
        with transaction.atomic():
            make_move(verb=verb, request=request, by=PORTAL, at=at)
            if not Assignment.objects.filter(request=request).exists():
                choose_cluster(request=request, cluster=cluster, by=PORTAL, at=at)
    except DomainError:
        return False
    return True


@dataclass(frozen=True)
class AutomaticStart:
    """The automatic start of a queued request: clusters, rank, and what prevents it now.

    `files_checked_at` is when a worker asked a catalogue for its files; None if none did yet, or it
    needs none.
    """

    clusters: tuple[str, ...]
    rank: int
    obstacle: str
    files_checked_at: datetime | None = None


def automatic_clusters(request: Request) -> list[Cluster]:
    """Return the clusters that start a queued request automatically."""
    assignment = assignment_of(request)
    if assignment:
        candidates = [assignment.cluster]
    else:
        candidates = list(Cluster.objects.filter(submits=True))
    clusters = []
    for cluster in candidates:
        with suppress(SchedulerError):
            options = options_of(cluster)
            is_open = not options.experiments or request.experiment.key in options.experiments
            if cluster.submits and options.automatic and is_open:
                clusters.append(cluster)
    return clusters


def automatic_start_of(request: Request, at: datetime) -> AutomaticStart | None:
    """Return how a queued request starts; None in other states. No catalogue is asked."""
    if request.state != RequestState.QUEUED:
        return None
    clusters = automatic_clusters(request)
    outlook = read_outlook(at)
    obstacles = [find_obstacle(request, cluster, outlook) for cluster in clusters]
    check = files_check_of(request)
    return AutomaticStart(
        clusters=tuple(cluster.name for cluster in clusters),
        rank=rank_of(request) or 0,
        obstacle=obstacles[0] if obstacles and all(obstacles) else "",
        files_checked_at=check.checked_at if check else None,
    )
