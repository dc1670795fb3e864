"""Moves of requests that follow from their jobs.

The first job starts a request, and the last one completes it.
"""

from collections.abc import Iterable
from datetime import datetime, timedelta

from django.db import transaction
from django.db.models import Exists, OuterRef, Q

from apps.core.domain.events import events_of
from apps.core.errors import DomainError
from apps.jobs.domain.records.jobs import totals_as_of
from apps.jobs.models import Collection, Job, QueueCount, QueueReading
from apps.production.domain.lifecycle.moves import make_move
from apps.production.domain.outputs.acceptance import acceptances_of
from apps.production.domain.outputs.counts import is_located
from apps.production.enums import PORTAL, RequestState, Verb
from apps.production.models import Request
from apps.progress.domain.stage_counts import StageProgress, progress_of_many
from apps.submission.domain.arrays.submissions import requests_run_by_portal

#: How long nothing must happen before failed jobs that were submitted by hand count as final.
SETTLED = timedelta(hours=6)
#: Older readings of the queue are ignored.
FRESH = timedelta(minutes=15)


def follow_requests(*, at: datetime) -> list[Request]:
    """Move requests whose jobs appeared, finished or have located outputs, and return them."""
    return start_seen(at=at) + complete_ended(at=at) + examine_located(at=at)


def start_seen(*, at: datetime) -> list[Request]:
    """Start queued requests that have a job submitted after they entered the queue.

    Earlier jobs were tests.
    """
    jobs = Job.objects.filter(request=OuterRef("pk"))
    waiting = QueueCount.objects.filter(request=OuterRef("pk"))
    queued = Request.objects.filter(state=RequestState.QUEUED).filter(
        Exists(jobs) | Exists(waiting)
    )
    moved = []
    for request in queued.select_related("experiment"):
        since = (
            events_of(request).filter(new=RequestState.QUEUED).values_list("at", flat=True).last()
        )
        if since and (
            Job.objects.filter(request=request, submitted_at__gte=since).exists()
            or QueueCount.objects.filter(request=request, newest_submitted_at__gte=since).exists()
        ):
            moved += _move_as_portal(request, Verb.START, at)
    return moved


def complete_ended(*, at: datetime) -> list[Request]:
    """Complete running requests whose requested jobs are all done or will not come.

    Failed jobs that the portal submitted wait for a decision. Jobs submitted by hand end a stage
    once it has settled.
    """
    # The number of jobs of keep-up processing is not known in advance.
    kept_up = Q(arguments__stop_on__isnull=False)
    running = list(
        Request.objects.filter(~kept_up, state=RequestState.RUNNING).select_related("experiment")
    )
    progress = progress_of_many(running)
    accepted = acceptances_of(running)
    busy = set(QueueCount.objects.filter(request__in=running).values_list("request_id", flat=True))
    waited_for = busy | requests_run_by_portal([request.pk for request in running])
    knows = all_queues_are_known(at)
    moved = []
    for request in running:
        rows = [
            stage_progress
            for stage_progress in progress[request.pk]
            if stage_progress.requested_stage
        ]
        settled = knows and request.pk not in waited_for
        ended = []
        for stage_progress in rows:
            ended.append(
                (stage_progress.requested_stage and stage_progress.requested_stage.pk in accepted)
                or has_ended(stage_progress, at=at, settled=settled)
            )
        if rows and all(ended) and not _was_resumed(request, rows):
            moved += _move_as_portal(request, Verb.COMPLETE, at)
    return moved


def examine_located(*, at: datetime) -> list[Request]:
    """Move completing requests to data quality once their outputs are located."""
    completing = Request.objects.filter(state=RequestState.COMPLETING).prefetch_related(
        "stages__location"
    )
    moved = []
    for request in completing.select_related("experiment"):
        if all(is_located(stage) for stage in request.stages.all()):
            moved += _move_as_portal(request, Verb.REVIEW, at)
    return moved


def has_ended(stage_progress: StageProgress, *, at: datetime, settled: bool) -> bool:
    """Whether the requested jobs of a stage completed, or all finished and the stage has settled.

    A stage has settled if nothing has happened for `SETTLED`.
    """
    if stage_progress.requested_jobs is None:
        return False
    if stage_progress.completed >= stage_progress.requested_jobs:
        return True
    quiet = (
        stage_progress.sums.last_ended_at is not None
        and at - stage_progress.sums.last_ended_at >= SETTLED
    )
    return settled and quiet and stage_progress.ended >= stage_progress.requested_jobs


def all_queues_are_known(at: datetime) -> bool:
    """Whether queue and jobs of every collected cluster were read recently.

    The totals must be recent too.
    """
    as_of = totals_as_of()
    unknown = Collection.objects.filter(cluster__collects=True).exclude(
        Q(
            cluster__in=QueueReading.objects.filter(at__gte=at - FRESH, last_error="").values(
                "cluster"
            )
        )
        & Q(last_success_at__gte=at - FRESH)
    )
    return as_of is not None and at - as_of < FRESH and not unknown.exists()


def _was_resumed(request: Request, stages: Iterable[StageProgress]) -> bool:
    """Whether a user resumed the request after its last job, so that more jobs are expected."""
    at = events_of(request).filter(kind="request.resume").values_list("at", flat=True).last()
    last = max(
        (
            stage_progress.sums.last_ended_at
            for stage_progress in stages
            if stage_progress.sums.last_ended_at
        ),
        default=None,
    )
    return at is not None and (last is None or last <= at)


def _move_as_portal(request: Request, verb: Verb, at: datetime) -> list[Request]:
    """Make this move as the portal, unless the request was moved in the meantime."""
    try:
        with transaction.atomic():
            make_move(verb=verb, request=request, by=PORTAL, at=at)
    except DomainError:
        return []
    return [request]
