"""Release held jobs of arrays that the portal submitted, one array at a time.

The request is stored; the next run of `recall_sent` gives the command to the scheduler.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from django.db import transaction

from apps.accounts.models import User
from apps.clusters.models import Cluster
from apps.core.domain.background import enqueue
from apps.core.errors import InvalidTransition
from apps.jobs.domain.collection.proof import SKEW
from apps.jobs.models import LiveArray
from apps.production.domain.holds import open_holds
from apps.production.domain.reasons import checked_reason
from apps.production.enums import RequestState
from apps.production.models import Hold
from apps.submission.domain.arrays.submissions import (
    check_may_submit,
    may_submit,
    publish_event,
)
from apps.submission.domain.dispatch.recall import holds_in_queue
from apps.submission.enums import Purpose, SubmissionState
from apps.submission.models import Submission


@dataclass(frozen=True)
class ReleaseOffer:
    """The array of the portal behind a held row, and why its jobs cannot be released.

    `submission` is None for jobs of others. `obstacle` is a sentence; empty if there is none.
    """

    submission: Submission | None
    obstacle: str


def release_offers(arrays: Sequence[LiveArray], user: User) -> dict[int, ReleaseOffer]:
    """Return the offer for each row by its primary key, in two queries."""
    submissions = submissions_of(arrays)
    holds = list(open_holds())
    can_hold = {array.cluster: False for array in arrays}
    for cluster in can_hold:
        can_hold[cluster] = holds_in_queue(cluster)

    offers = {}
    for array in arrays:
        submission = submissions.get(array.pk)
        if submission is None:
            obstacle = "Not submitted by the portal: its owner or the site can release it."
        elif not may_submit(user, submission.request):
            obstacle = "Approvers and shifters can release it."
        else:
            obstacle = _obstacle(submission, holds, can_hold[array.cluster])
        offers[array.pk] = ReleaseOffer(submission, obstacle)
    return offers


def release_obstacle(submission: Submission) -> str:
    """Return why held jobs of an array cannot be released; "" if they can."""
    return _obstacle(submission, list(open_holds()), holds_in_queue(submission.cluster))


@transaction.atomic
def request_release(
    *, submission: Submission, by: User, at: datetime, reason: str = ""
) -> Submission:
    """Request that the scheduler releases the held jobs of an array.

    Raises `NotAllowed`, `InvalidFields`, `InvalidTransition` if they cannot be released.
    """
    check_may_submit(by, submission.request)
    reason = checked_reason(reason, needed=False)
    submission = (
        Submission.objects.select_for_update(of=("self",))
        .select_related("request__experiment", "cluster")
        .get(pk=submission.pk)
    )
    if obstacle := release_obstacle(submission):
        raise InvalidTransition(f"{submission} cannot be released. {obstacle}")
    submission.release_requested_at = at
    submission.last_error = ""
    submission.save(update_fields=["release_requested_at", "last_error"])
    publish_event("submission.release_requested", submission, at, by=by, reason=reason)
    enqueue("submission.send_to", cluster_id=submission.cluster_id)
    return submission


def _obstacle(submission: Submission, holds: Sequence[Hold], can_hold: bool) -> str:
    cluster: Cluster = submission.cluster
    if submission.state != SubmissionState.SENT or submission.settled_at:
        return "It has no jobs in the scheduler."
    if submission.cancel_requested_at or submission.cancelled_at:
        return "It is being cancelled."
    if not can_hold:
        return f"{cluster} does not let the portal release jobs: use the scheduler's command."
    if submission.purpose != Purpose.DEBUG and _is_on_hold(submission, holds):
        return "On hold in the portal: release the request, or lift its hold."
    if submission.release_requested_at or submission.held_at:
        return "Release requested; the scheduler has not confirmed it yet."
    return ""


def _is_on_hold(submission: Submission, holds: Sequence[Hold]) -> bool:
    """Return whether one of these holds, or the state of the request, keeps an array on hold."""
    request = submission.request
    if request.state == RequestState.ON_HOLD:
        return True
    for hold in holds:
        if hold.stage is not None:
            on_stage = (hold.stage.request_id, hold.stage.position)
            if on_stage == (request.pk, submission.position):
                return True
        elif hold.experiment_id in (None, request.experiment_id):
            return True
    return False


def submissions_of(arrays: Sequence[LiveArray]) -> dict[int, Submission]:
    """Return the array of the portal behind each row by its primary key; IDs are recycled."""
    sent = (
        Submission.objects.filter(
            state=SubmissionState.SENT,
            cluster__in={array.cluster_id for array in arrays},
            spool_id__in={array.spool_id for array in arrays},
        )
        .select_related("request__experiment", "cluster")
        .defer("script")
        .order_by("pk")
    )
    by_spool_id: dict[tuple[int, str], list[Submission]] = {}
    for submission in sent:
        by_spool_id.setdefault((submission.cluster_id, submission.spool_id), []).append(submission)

    submissions = {}
    for array in arrays:
        for submission in by_spool_id.get((array.cluster_id, array.spool_id), []):
            if submission.sent_at and submission.sent_at <= array.submitted_at + SKEW:
                submissions[array.pk] = submission
    return submissions
