"""Cancel submitted jobs of closed requests, and hold queued jobs of requests on hold."""

import logging
from dataclasses import dataclass
from datetime import datetime

from django.db import transaction

from apps.clusters.models import Cluster
from apps.clusters.schedulers.base import CommandRefused, HoldsJobs, SchedulerError, Submits
from apps.production.domain.holds import hold_of
from apps.production.enums import RequestState
from apps.production.models import Request
from apps.submission.domain.arrays.rows import adapter_that_submits
from apps.submission.domain.arrays.submissions import is_cancellable, publish_event
from apps.submission.enums import Purpose, SubmissionState
from apps.submission.models import Submission

log = logging.getLogger(__name__)

#: Jobs of requests in these states are cancelled.
ENDED = frozenset({RequestState.CANCELLED, RequestState.SUPERSEDED})
_EVENTS = {
    "cancel": "submission.cancelled",
    "hold": "submission.held",
    "release": "submission.released",
}


def recall_sent(*, cluster: Cluster, at: datetime) -> int:
    """Cancel, hold or release submitted jobs as their requests require.

    Return the number of arrays that changed. Failures are retried in the next run: every command to
    a scheduler may be repeated.
    """
    try:
        adapter = adapter_that_submits(cluster)
    except SchedulerError as error:
        log.warning("%s", error)
        return 0
    changed = 0
    sent = Submission.objects.filter(
        cluster=cluster, state=SubmissionState.SENT, settled_at=None, cancelled_at=None
    )
    for submission in sent.select_related("request__experiment", "cluster").defer("script"):
        try:
            changed += _recall(submission, adapter, at)
        except Exception as error:  # an adapter may raise anything; continue with the others
            log.warning("submission %s: %s", submission, error)
    return changed


def _recall(submission: Submission, adapter: Submits, at: datetime) -> bool:
    """Cancel, hold or release one array if its request requires it; return whether it did."""
    is_debug = submission.purpose == Purpose.DEBUG
    is_closed = bool(submission.cancel_requested_at) or (
        submission.request.state in ENDED and not is_debug
    )
    stage = submission.request.stages.filter(position=submission.position).first()
    is_held = not is_closed and not is_debug and hold_of(submission.request, stage) is not None

    changes: dict[str, datetime | None]
    if is_closed:
        adapter.cancel(submission.spool_id)
        action = "cancel"
        changes = {"cancelled_at": at}
    elif not isinstance(adapter, HoldsJobs):
        return False
    elif is_held:
        if submission.held_at:
            return False
        adapter.hold(submission.spool_id)
        action = "hold"
        changes = {"held_at": at, "release_requested_at": None}
    elif submission.held_at or submission.release_requested_at:
        try:
            adapter.release(submission.spool_id)
        except CommandRefused as error:
            if not submission.release_requested_at:
                raise
            _note_refused_release(submission, error, at)
            return False
        action = "release"
        changes = {"held_at": None, "release_requested_at": None}
    else:
        return False

    with transaction.atomic():
        Submission.objects.filter(pk=submission.pk).update(**changes)
        publish_event(_EVENTS[action], submission, at, jobs=submission.tasks - submission.ended)
    return True


@transaction.atomic
def _note_refused_release(submission: Submission, error: CommandRefused, at: datetime) -> None:
    """Store that the scheduler refused a release that a user requested. It is not repeated."""
    last_error = str(error).replace("\0", "")[:2000]
    Submission.objects.filter(pk=submission.pk).update(
        release_requested_at=None, last_error=last_error
    )
    publish_event("submission.release_refused", submission, at, error=last_error)


def holds_in_queue(cluster: Cluster) -> bool:
    """Return whether queued jobs can be held on this cluster."""
    try:
        return isinstance(adapter_that_submits(cluster), HoldsJobs)
    except SchedulerError:
        return False


@dataclass(frozen=True)
class JobsInFlight:
    """The jobs of a request in schedulers.

    `held` of them are held there; `can_hold` is whether all these schedulers can hold queued ones.
    """

    jobs: int
    clusters: tuple[str, ...]
    can_hold: bool
    held: int

    def __bool__(self) -> bool:
        return bool(self.jobs)


def jobs_in_flight(request: Request) -> JobsInFlight:
    """Return the jobs of a request in schedulers, without those being cancelled."""
    submissions = list(
        request.submissions.filter(is_cancellable()).select_related("cluster").defer("script")
    )
    jobs = 0
    held = 0
    for submission in submissions:
        unfinished = submission.tasks - submission.ended
        jobs += unfinished
        if submission.held_at:
            held += unfinished

    clusters = {submission.cluster for submission in submissions}
    return JobsInFlight(
        jobs=jobs,
        clusters=tuple(sorted(cluster.name for cluster in clusters)),
        can_hold=all(holds_in_queue(cluster) for cluster in clusters),
        held=held,
    )
