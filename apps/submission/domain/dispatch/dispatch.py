"""Submit arrays to schedulers exactly once: commit the intent, submit, store the outcome."""

import logging
from datetime import datetime, timedelta
from typing import Any

from django.db import transaction

from apps.clusters.models import Cluster
from apps.clusters.schedulers.base import SchedulerError, SubmissionRefused
from apps.clusters.schedulers.options import SubmissionOptions
from apps.core.domain.locks import lock_for_this_transaction
from apps.diagnosis.domain.reading.attempts import note_retries
from apps.jobs.domain.collection.origin import record_array
from apps.production.domain.holds import hold_of
from apps.production.domain.outlook import read_outlook
from apps.production.models import Request
from apps.submission.domain.arrays.files import ended_jobs, follow_jobs
from apps.submission.domain.arrays.rows import adapter_that_submits, batch_job, options_of
from apps.submission.domain.arrays.submissions import (
    arrays_to_submit,
    in_flight,
    lost_arrays,
    publish_event,
    retried_jobs,
    write_ranges,
)
from apps.submission.domain.dispatch.excluded_hosts import (
    drop_excluded_hosts,
    with_excluded_hosts,
)
from apps.submission.enums import Purpose, SubmissionState
from apps.submission.models import Submission

log = logging.getLogger(__name__)

#: Only one task at a time submits to a cluster; it holds this lock.
SENDING_LOCK = 4_716_005
#: Beyond the time limit of a command, no submission can still be in progress.
MARGIN = timedelta(seconds=60)
BACK_OFF_SECONDS = (15, 60, 300, 900)
#: Attempts before a submission that never arrived counts as refused.
MAX_ATTEMPTS = 8
_EVENT_OF_OUTCOME = {
    SubmissionState.SENT: "submission.sent",
    SubmissionState.FAILED: "submission.failed",
    SubmissionState.UNKNOWN: "submission.unknown",
    SubmissionState.PLANNED: "submission.planned",
}


def grace_period(cluster: Cluster) -> timedelta:
    """Return the time after which a submission has either succeeded or failed for good."""
    try:
        return timedelta(seconds=float(cluster.options.get("timeout_seconds", 60))) + MARGIN
    except (TypeError, ValueError):
        return timedelta(minutes=10)


@transaction.atomic
def claim_next(*, cluster: Cluster, at: datetime) -> Submission | None:
    """Claim the first array that can be submitted now, and commit that intent.

    None if there is no such array, or no capacity: an array that waits for capacity also blocks
    those behind it. Raises `SchedulerError` for invalid options.
    """
    locked = Cluster.objects.select_for_update().get(pk=cluster.pk)
    if not locked.submits:
        return None
    submission, _ = _next_to_submit(locked, at)
    if submission is not None and _limit_of_request(submission.request):
        # Another cluster may submit jobs of the same request at the same time.
        lock_for_this_transaction(f"submission.in_flight.{submission.request_id}")
        if not _is_within_its_limits(submission, options_of(locked)):
            return None
    if submission is not None:
        submission.state = SubmissionState.SENDING
        submission.attempts += 1
        submission.sending_at = at
        submission.asked = with_excluded_hosts(submission.asked, locked, at=at)
        submission.save(update_fields=["state", "attempts", "sending_at", "asked"])
        publish_event("submission.sending", submission, at)
    return submission


def has_room(*, cluster: Cluster, at: datetime) -> bool:
    """Return whether another request can start on a cluster.

    Raises `SchedulerError` for invalid options.
    """
    submission, is_full = _next_to_submit(cluster, at)
    return submission is None and not is_full


def _next_to_submit(cluster: Cluster, at: datetime) -> tuple[Submission | None, bool]:
    """Return the array to submit first, if any, and whether the cluster is full."""
    options = options_of(cluster)
    jobs_in_flight = in_flight(Submission.objects.filter(cluster=cluster))
    outlook = read_outlook(at)
    for submission in arrays_to_submit(cluster, at):
        stage = submission.request.stages.filter(position=submission.position).first()
        waits = hold_of(submission.request, stage) or outlook.against(
            submission.request, [stage] if stage else []
        )
        if waits and submission.purpose != Purpose.DEBUG:
            continue
        if not _is_within_its_limits(submission, options):
            continue
        if exceeds(submission, jobs_in_flight, limit=options.most_in_flight):
            return None, True
        return submission, False
    return None, jobs_in_flight >= options.most_in_flight


def _limit_of_request(request: Request) -> int:
    """Return the limit of concurrent jobs of a request, 0 if it has none."""
    assignment = getattr(request, "assignment", None)
    if assignment is None:
        return 0
    most: int = assignment.most_in_flight or 0
    return most


def _is_within_its_limits(submission: Submission, options: SubmissionOptions) -> bool:
    """Return whether an array is within the limits of its request and experiment.

    The limit of the request holds on all clusters together.
    """
    request = submission.request
    of_experiment = Submission.objects.filter(
        cluster=submission.cluster_id, request__experiment=request.experiment_id
    )
    limit_of_experiment = options.limit_of(request.experiment.key)
    if exceeds(submission, in_flight(of_experiment), limit=limit_of_experiment):
        return False
    limit_of_request = _limit_of_request(request)
    if not limit_of_request:
        return True
    if submission.tasks > limit_of_request:
        return False  # the array is split first
    of_request = Submission.objects.filter(request=request)
    return not exceeds(submission, in_flight(of_request), limit=limit_of_request)


def exceeds(submission: Submission, jobs_in_flight: int, *, limit: int) -> bool:
    """Return whether an array must wait until some of the jobs in flight have finished.

    Without such jobs, it is submitted even if it has more jobs than the limit.
    """
    return jobs_in_flight > 0 and jobs_in_flight + submission.tasks > limit


def send(*, submission: Submission, at: datetime) -> Submission:
    """Submit a claimed array and store the outcome. Not in a transaction."""
    try:
        spool_id = adapter_that_submits(submission.cluster).submit(batch_job(submission))
    except SubmissionRefused as error:
        if submission.excluded_hosts and _drop_excluded_hosts(submission):
            return send(submission=submission, at=at)
        return _store_outcome(submission, SubmissionState.FAILED, at, last_error=str(error))
    except Exception as error:
        # Any exception, not only `SchedulerError`: adapters are plugins, and one that fails on an
        # unexpected answer may do so after the scheduler has accepted the job. The array must not
        # be submitted again before the scheduler was asked whether it has the job.
        is_bug = not isinstance(error, SchedulerError)
        log.warning("submission %s: %s", submission, error, exc_info=is_bug)
        due_at = at + grace_period(submission.cluster)
        return _store_outcome(
            submission, SubmissionState.UNKNOWN, at, last_error=str(error), due_at=due_at
        )
    return _store_outcome(submission, SubmissionState.SENT, at, spool_id=spool_id, last_error="")


def _drop_excluded_hosts(submission: Submission) -> bool:
    """Store that a claimed array is submitted without its exclusions; False if it was superseded.

    The scheduler has refused it, so it certainly does not have it.
    """
    asked = drop_excluded_hosts(submission.asked)
    claimed = Submission.objects.filter(
        pk=submission.pk, attempts=submission.attempts, state=SubmissionState.SENDING
    )
    if not claimed.update(asked=asked):
        return False
    submission.asked = asked
    return True


def look_for_lost(*, cluster: Cluster, at: datetime) -> int:
    """Look up arrays of unknown state in the scheduler; plan those again that it does not have."""
    looked = 0
    for submission in lost_arrays(cluster, at, grace_period(cluster)):
        looked += 1
        try:
            spool_id = adapter_that_submits(cluster).find_submitted(submission.name)
        except Exception as error:  # as in `send`: the state stays unknown, for the next look-up
            is_bug = not isinstance(error, SchedulerError)
            log.warning("submission %s: %s", submission, error, exc_info=is_bug)
            due_at = at + timedelta(seconds=BACK_OFF_SECONDS[1])
            _store_outcome(
                submission, SubmissionState.UNKNOWN, at, last_error=str(error), due_at=due_at
            )
            continue
        if spool_id:
            _store_outcome(submission, SubmissionState.SENT, at, spool_id=spool_id, last_error="")
        elif submission.attempts >= MAX_ATTEMPTS:
            _store_outcome(submission, SubmissionState.FAILED, at)
        else:
            wait = BACK_OFF_SECONDS[min(submission.attempts, len(BACK_OFF_SECONDS)) - 1]
            _store_outcome(
                submission, SubmissionState.PLANNED, at, due_at=at + timedelta(seconds=wait)
            )
    return looked


@transaction.atomic
def refresh_progress(*, cluster: Cluster, at: datetime) -> None:
    """Count the collected finished jobs of each submission."""
    unsettled = Submission.objects.filter(
        cluster=cluster, state=SubmissionState.SENT, settled_at=None
    )
    # All transactions lock the ledgers of files in this order. `no_key` lets other transactions
    # insert retries of the arrays: they lock a ledger first, and would wait for this one with it.
    for submission in (
        unsettled.select_for_update(of=("self",), no_key=True)
        .select_related("request", "cluster")
        .defer("script")
        .order_by("request", "position", "pk")
    ):
        completed_jobs, failed_jobs = ended_jobs(submission, at=at)
        completed = len(completed_jobs)
        failed = sorted(failed_jobs)
        ended = completed + len(failed)
        is_unchanged = ended == submission.ended and completed == submission.completed
        if is_unchanged and ended < submission.tasks:
            continue
        submission.ended = ended
        submission.completed = completed
        submission.failed_indices = write_ranges(failed)
        submission.settled_at = at if ended >= submission.tasks else None
        submission.save(update_fields=["ended", "completed", "failed_indices", "settled_at"])
        follow_jobs(submission, at=at)
        if submission.retry_of_id:
            note_retries(retries=retried_jobs(submission))
        if submission.settled_at:
            publish_event(
                "submission.ended", submission, at, completed=completed, failed=len(failed)
            )


@transaction.atomic
def _store_outcome(
    submission: Submission, state: SubmissionState, at: datetime, **changes: Any
) -> Submission:
    """Store the outcome of an attempt.

    It is dropped if an outcome is stored already, or if another attempt superseded this one.
    """
    current = (
        Submission.objects.select_for_update(of=("self",))
        .select_related("request", "cluster")
        .get(pk=submission.pk)
    )
    is_open = current.state in {SubmissionState.SENDING, SubmissionState.UNKNOWN}
    if current.attempts != submission.attempts or not is_open:
        if state == SubmissionState.SENT and current.spool_id != changes["spool_id"]:
            log.error("submission %s: job %s is one too many", submission, changes["spool_id"])
            publish_event("submission.one_too_many", current, at, spool_id=changes["spool_id"])
        return current

    is_news = current.state != state or state == SubmissionState.SENT
    if state == SubmissionState.SENT:
        changes["sent_at"] = current.sending_at
    if "last_error" in changes:
        changes["last_error"] = changes["last_error"].replace("\0", "")[:2000]
    for name, value in {"state": state, **changes}.items():
        setattr(current, name, value)
    current.save(update_fields=["state", *changes])
    if state == SubmissionState.SENT and current.sent_at:
        record_array(
            cluster=current.cluster,
            spool_id=current.spool_id,
            request=current.request,
            sent_at=current.sent_at,
            at=at,
        )
    if is_news:
        publish_event(_EVENT_OF_OUTCOME[state], current, at, error=current.last_error)
    return current
