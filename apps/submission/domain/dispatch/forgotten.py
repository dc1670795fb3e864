"""Find arrays that the scheduler accepted and has forgotten.

slurmctld saves its jobs up to five seconds after it accepted them. If it is killed before, the
controller that takes over does not know them, and no job of theirs ever ends in accounting. They
are looked up in the scheduler again, as arrays of unknown state, and then submitted again.
"""

import logging
from datetime import datetime, timedelta

from django.db import transaction
from django.db.models import QuerySet

from apps.clusters.models import Cluster
from apps.clusters.schedulers.base import KnowsSubmissions
from apps.submission.domain.arrays.rows import adapter_that_submits
from apps.submission.domain.arrays.submissions import publish_event
from apps.submission.domain.dispatch.dispatch import grace_period
from apps.submission.enums import SubmissionState
from apps.submission.models import Submission

log = logging.getLogger(__name__)

#: When an array without a finished job is first looked up after its submission, and how often then.
FIRST_LOOK_AFTER = timedelta(minutes=15)
LOOK_EVERY = timedelta(minutes=30)
#: Older ones are left: accounting may have deleted what it knew of them.
LOOKED_FOR = timedelta(days=1)
#: What was true of the job in the scheduler alone.
_OF_THE_JOB = ("sent_at", "held_at", "release_requested_at")
#: Arrays that one run looks up by name; the next run continues.
MOST_LOOKED_UP = 20


def look_for_forgotten(*, cluster: Cluster, at: datetime) -> int:
    """Doubt the arrays that the scheduler does not know; return how many.

    None is doubted unless the scheduler answers. Then `look_for_lost` asks once more, later.
    """
    silent = list(_silent(cluster, at))
    if not silent:
        return 0
    try:
        adapter = adapter_that_submits(cluster)
        listed = set()
        if isinstance(adapter, KnowsSubmissions):
            listed = {job.name for job in adapter.submissions()}
        unlisted = [submission for submission in silent if submission.name not in listed][
            :MOST_LOOKED_UP
        ]
        forgotten = [
            submission for submission in unlisted if adapter.find_submitted(submission.name) is None
        ]
    except Exception as error:  # an adapter may raise anything
        log.warning("cluster %s: %s", cluster, error)
        return 0

    looked_up = [
        submission.pk
        for submission in silent
        if submission.name in listed or submission in unlisted
    ]
    Submission.objects.filter(pk__in=looked_up, state=SubmissionState.SENT).update(
        due_at=at + LOOK_EVERY
    )
    return sum(_doubt(submission, at) for submission in forgotten)


def _silent(cluster: Cluster, at: datetime) -> QuerySet[Submission]:
    """Return submitted arrays without a finished job that are due to be looked up."""
    submissions = Submission.objects.filter(
        cluster=cluster,
        state=SubmissionState.SENT,
        settled_at=None,
        ended=0,
        cancel_requested_at=None,
        sent_at__range=(at - LOOKED_FOR, at - FIRST_LOOK_AFTER),
        due_at__lte=at,
    )
    return submissions.select_related("request", "cluster").defer("script").order_by("due_at", "pk")


@transaction.atomic
def _doubt(submission: Submission, at: datetime) -> bool:
    """Note that it is unknown whether the scheduler has an array, unless a job of it has ended."""
    current = (
        Submission.objects.select_for_update(of=("self",))
        .select_related("request", "cluster")
        .get(pk=submission.pk)
    )
    if (current.state, current.spool_id, current.ended) != (
        SubmissionState.SENT,
        submission.spool_id,
        0,
    ):
        return False

    current.state = SubmissionState.UNKNOWN
    current.due_at = at + grace_period(current.cluster)
    current.last_error = f"The scheduler accepted job {current.spool_id} and no longer knows it."
    current.spool_id = ""
    for name in _OF_THE_JOB:
        setattr(current, name, None)
    current.save(update_fields=["state", "due_at", "last_error", "spool_id", *_OF_THE_JOB])
    log.warning("submission %s: %s", current, current.last_error)
    publish_event("submission.unknown", current, at, error=current.last_error)
    return True
