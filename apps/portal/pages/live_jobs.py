"""Queued, running and held arrays, a row each, with the release of held ones."""

from collections.abc import Sequence
from dataclasses import dataclass

from apps.accounts.models import User
from apps.clusters.schedulers.base import CurrentState
from apps.jobs.domain.live.reasons import QueueReason, reason_of
from apps.jobs.models import LiveArray
from apps.submission.domain.dispatch.held import ReleaseOffer, release_offers, submissions_of


@dataclass(frozen=True)
class LiveRow:
    """An unfinished array, why it waits, and the offer to release it if it is held.

    `log_job_id` is the running job whose log can be followed; "" if its ID is not known.
    """

    array: LiveArray
    reason: QueueReason
    offer: ReleaseOffer | None = None
    log_job_id: str = ""


def live_rows(arrays: Sequence[LiveArray], *, state: CurrentState, user: User) -> list[LiveRow]:
    """Return a row for each array; the number of queries does not depend on their number."""
    rows = []
    if state == CurrentState.HELD:
        offers = release_offers(arrays, user)
        for array in arrays:
            rows.append(LiveRow(array, reason_of(array.reason), offer=offers[array.pk]))
        return rows

    submissions = submissions_of(arrays)
    for array in arrays:
        submission = submissions.get(array.pk)
        log_job_id = ""
        if state == CurrentState.RUNNING:
            if submission:
                log_job_id = submission.first_job_id
            elif array.jobs == 1:
                log_job_id = array.spool_id
        rows.append(LiveRow(array, reason_of(array.reason), log_job_id=log_job_id))
    return rows
