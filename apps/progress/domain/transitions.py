"""Moving requests on as their jobs do: the first job starts one, the last one ends it."""

from collections.abc import Iterable
from datetime import datetime, timedelta

from django.db import transaction
from django.db.models import Exists, OuterRef, Q

from apps.core.domain.events import events_of
from apps.core.errors import DomainError
from apps.jobs.domain.jobs import totals_as_of
from apps.jobs.models import Collection, Job, QueueCount, QueueReading
from apps.production.domain.lifecycle.moves import make_move
from apps.production.domain.outputs.acceptance import acceptances_of
from apps.production.domain.outputs.counts import is_located
from apps.production.enums import PORTAL, RequestState, Verb
from apps.production.models import Request
from apps.progress.domain.stage_counts import StageProgress, progress_of_many
from apps.submission.domain.submissions import sent_here

#: Failed jobs that were sent by hand count as final once nothing has happened for so long: nobody tells the portal.
SETTLED = timedelta(hours=6)
#: A reading of the queue that is older tells nothing of now.
FRESH = timedelta(minutes=15)


def follow_requests(*, at: datetime) -> list[Request]:
    """Start requests whose first job is seen, and end those whose last job is; return those that were moved."""
    return start_seen(at=at) + complete_ended(at=at) + examine_located(at=at)


def start_seen(*, at: datetime) -> list[Request]:
    """Move queued requests with a job that was submitted after they came into the queue to “running”."""
    jobs = Job.objects.filter(request=OuterRef("pk"))
    waiting = QueueCount.objects.filter(request=OuterRef("pk"))
    queued = Request.objects.filter(state=RequestState.QUEUED).filter(Exists(jobs) | Exists(waiting))
    moved = []
    for request in queued.select_related("experiment"):
        since = _queued_at(request)
        if since and _has_job_since(request, since):
            moved += _move(request, Verb.START, at)
    return moved


def complete_ended(*, at: datetime) -> list[Request]:
    """Move running requests whose asked jobs are all done, or are not waited for any more.

    Failed jobs of the portal's own sending wait for a person; those sent by hand end a stage once all is quiet.
    """
    kept_up = Q(arguments__stop_on__isnull=False)  # its jobs are not counted beforehand: who sends them ends it
    running = list(Request.objects.filter(~kept_up, state=RequestState.RUNNING).select_related("experiment"))
    progress = progress_of_many(running)
    accepted = acceptances_of(running)
    busy = set(QueueCount.objects.filter(request__in=running).values_list("request_id", flat=True))
    waited_for = busy | sent_here([request.pk for request in running])
    knows = _all_queues_are_known(at)
    moved = []
    for request in running:
        rows = [row for row in progress[request.pk] if row.asked]
        settled = knows and request.pk not in waited_for
        ended = [(row.asked and row.asked.pk in accepted) or has_ended(row, at=at, settled=settled) for row in rows]
        if rows and all(ended) and not _was_resumed(request, rows):
            moved += _move(request, Verb.COMPLETE, at)
    return moved


def examine_located(*, at: datetime) -> list[Request]:
    """Pass requests that are completing on to data quality, once their outputs are where they must be."""
    completing = Request.objects.filter(state=RequestState.COMPLETING).prefetch_related("stages__location")
    moved = []
    for request in completing.select_related("experiment"):
        if all(is_located(stage) for stage in request.stages.all()):
            moved += _move(request, Verb.REVIEW, at)
    return moved


def has_ended(row: StageProgress, *, at: datetime, settled: bool) -> bool:
    """Tell whether a stage's asked jobs are done; or have ended, and nothing of it has happened for `SETTLED`."""
    if row.wanted is None:
        return False
    if row.completed >= row.wanted:
        return True
    quiet = row.sums.last_ended_at is not None and at - row.sums.last_ended_at >= SETTLED
    return settled and quiet and row.ended >= row.wanted


def _all_queues_are_known(at: datetime) -> bool:
    """Tell whether every collected cluster has said lately what waits and runs, and the totals are as fresh."""
    as_of = totals_as_of()
    unknown = Collection.objects.filter(cluster__collects=True).exclude(
        Q(cluster__in=QueueReading.objects.filter(at__gte=at - FRESH, last_error="").values("cluster"))
        & Q(last_success_at__gte=at - FRESH)
    )
    return as_of is not None and at - as_of < FRESH and not unknown.exists()


def _queued_at(request: Request) -> datetime | None:
    """Return when the request last came into the queue: jobs of before were tests, or of another life."""
    return events_of(request).filter(new=RequestState.QUEUED).values_list("at", flat=True).last()


def _was_resumed(request: Request, rows: Iterable[StageProgress]) -> bool:
    """Tell whether somebody put the request back into production after its last job: that person waits for more."""
    at = events_of(request).filter(kind="request.resume").values_list("at", flat=True).last()
    last = max((row.sums.last_ended_at for row in rows if row.sums.last_ended_at), default=None)
    return at is not None and (last is None or last <= at)


def _has_job_since(request: Request, since: datetime) -> bool:
    seen = Job.objects.filter(request=request, submitted_at__gte=since).exists()
    return seen or QueueCount.objects.filter(request=request, newest_submitted_at__gte=since).exists()


def _move(request: Request, verb: Verb, at: datetime) -> list[Request]:
    """Make this move as the portal; somebody who was faster is right."""
    try:
        with transaction.atomic():
            make_move(verb=verb, request=request, by=PORTAL, at=at)
    except DomainError:
        return []
    return [request]
