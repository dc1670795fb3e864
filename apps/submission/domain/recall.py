"""What becomes of jobs that were sent: ended when their request is, held in the scheduler's queue while it is held."""

import logging
from datetime import datetime
from typing import Any

from django.db import transaction

from apps.clusters.models import Cluster
from apps.clusters.schedulers.base import HoldsJobs, SchedulerError
from apps.core.domain.events import publish
from apps.production.domain.holds import hold_of
from apps.production.enums import PORTAL, RequestState
from apps.submission.domain.arrays import adapter_that_submits
from apps.submission.enums import SubmissionState
from apps.submission.models import Submission

log = logging.getLogger(__name__)

#: Nobody waits for the jobs of these any more.
ENDED = frozenset({RequestState.CANCELLED, RequestState.SUPERSEDED})


def recall_sent(*, cluster: Cluster, at: datetime) -> int:
    """Bring what a scheduler does with sent jobs in line with their requests; return how many arrays were touched.

    Whatever fails is tried again at the next turn: all that is told to a scheduler may be told twice.
    """
    try:
        adapter = adapter_that_submits(cluster)
    except SchedulerError as error:
        log.warning("%s", error)
        return 0
    touched = 0
    sent = Submission.objects.filter(cluster=cluster, state=SubmissionState.SENT, settled_at=None, cancelled_at=None)
    for submission in sent.select_related("request__experiment", "cluster").defer("script"):
        try:
            if submission.cancel_asked_at or submission.request.state in ENDED:
                adapter.cancel(submission.spool_id)
                _note(submission, "submission.cancelled", at, cancelled_at=at)
            elif not isinstance(adapter, HoldsJobs) or (held := _is_held(submission)) == bool(submission.held_at):
                continue
            elif held:
                adapter.hold(submission.spool_id)
                _note(submission, "submission.held", at, held_at=at)
            else:
                adapter.release(submission.spool_id)
                _note(submission, "submission.released", at, held_at=None)
        except Exception as error:  # an adapter may raise anything; the others go on
            log.warning("submission %s: %s", submission, error)
            continue
        touched += 1
    return touched


def holds_in_queue(cluster: Cluster) -> bool:
    """Tell whether what waits in this cluster's queue can be held there."""
    try:
        return isinstance(adapter_that_submits(cluster), HoldsJobs)
    except SchedulerError:
        return False


def _is_held(submission: Submission) -> bool:
    stage = submission.request.stages.filter(position=submission.position).first()
    return hold_of(submission.request, stage) is not None


@transaction.atomic
def _note(submission: Submission, kind: str, at: datetime, **changes: Any) -> None:
    Submission.objects.filter(pk=submission.pk).update(**changes)
    data = {
        "submission": submission.number,
        "stage": submission.stage_name,
        "cluster": submission.cluster.name,
        "jobs": submission.tasks - submission.ended,
        "spool_id": submission.spool_id,
    }
    publish(kind=kind, target=submission.request, by=PORTAL, at=at, data=data)
