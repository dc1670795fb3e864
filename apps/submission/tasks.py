"""Celery tasks that submit jobs."""

import logging

from celery import shared_task
from django.utils import timezone

from apps.clusters.models import Cluster
from apps.clusters.schedulers.base import SchedulerError
from apps.core.domain.locks import exclusive_lock
from apps.core.errors import InvalidFields
from apps.submission.domain.arrays.files import check_ledger, ledgers_to_check
from apps.submission.domain.arrays.limits import split_large_arrays
from apps.submission.domain.arrays.plan import plan_next
from apps.submission.domain.arrays.submissions import SENDABLE, clusters_to_look_at
from apps.submission.domain.arrays.trials import complete_processed_requests, evaluate_tests
from apps.submission.domain.dispatch import dispatch
from apps.submission.domain.dispatch.forgotten import look_for_forgotten
from apps.submission.domain.dispatch.recall import recall_sent
from apps.submission.domain.dispatch.restore import note_unknown_arrays, stop_after_restore
from apps.submission.domain.dispatch.start import start_next
from apps.submission.domain.files.recovery import give_settled_files_back
from apps.submission.domain.retries.owned import record_owner_retries, submit_owner_retries
from apps.submission.domain.retries.release import BATCHES, advance_batch
from apps.submission.domain.scouts.watch import watch_stages
from apps.submission.enums import SubmissionState
from apps.submission.models import Assignment

log = logging.getLogger(__name__)

#: Maximum number of arrays that one run submits; the next run continues.
MOST_ARRAYS_PER_RUN = 20
MOST_LEDGERS_PER_RUN = 100
#: Of a stage, while its ledger is compared with its jobs.
CHECKING_LOCK = 4_716_050


@shared_task(name="submission.send_all")
def send_all() -> None:
    """Start a task for every cluster that has or may get jobs of the portal."""
    stop_after_restore(at=timezone.now())
    for pk in clusters_to_look_at().values_list("pk", flat=True):
        send_to.delay(cluster_id=pk)


@shared_task(name="submission.release_retries")
def release_retries() -> None:
    """Release the next step of each batch of retries, and count the outcomes of earlier steps."""
    for batch in BATCHES.due(timezone.now()):
        advance_batch(batch=batch, at=timezone.now())


@shared_task(name="submission.check_files")
def check_files() -> None:
    """Compare ledgers of files with the jobs, and take back files of cancelled recoveries."""
    for stage in ledgers_to_check(timezone.now())[:MOST_LEDGERS_PER_RUN]:
        with exclusive_lock(CHECKING_LOCK, stage.pk) as is_ours:
            if is_ours:
                check_ledger(stage, at=timezone.now())
    give_settled_files_back(at=timezone.now())


@shared_task(name="submission.look_after_restore")
def look_after_restore() -> None:
    """Look for jobs that the portal does not know, for some days after a restore."""
    for cluster in clusters_to_look_at():
        try:
            note_unknown_arrays(cluster=cluster, at=timezone.now())
        except SchedulerError as error:
            log.warning("cluster %s: %s", cluster, error)


@shared_task(name="submission.send_to")
def send_to(*, cluster_id: int) -> None:
    """Count finished jobs on a cluster, find lost ones, and submit what is due.

    Arrays are submitted in the order of the queue.
    """
    stop_after_restore(at=timezone.now())
    cluster = Cluster.objects.filter(pk=cluster_id).first()
    if cluster is None:
        return
    # Do not wait for the lock: a cluster that hangs must not block more than one worker.
    with exclusive_lock(dispatch.SENDING_LOCK, cluster.pk) as is_ours:
        if not is_ours:
            return
        dispatch.refresh_progress(cluster=cluster, at=timezone.now())
        look_for_forgotten(cluster=cluster, at=timezone.now())
        dispatch.look_for_lost(cluster=cluster, at=timezone.now())
        watch_stages(cluster=cluster, at=timezone.now())
        recall_sent(cluster=cluster, at=timezone.now())
        try:
            complete_processed_requests(cluster=cluster, at=timezone.now())
            evaluate_tests(cluster=cluster, at=timezone.now())
        except SchedulerError as error:
            log.warning("cluster %s: %s", cluster, error)
        record_owner_retries(cluster=cluster)
        submit_owner_retries(cluster=cluster, at=timezone.now())
        _send_due(cluster)


def _send_due(cluster: Cluster) -> None:
    """Submit what is due, then start the next request in the queue if there is capacity."""
    for _ in range(MOST_ARRAYS_PER_RUN):
        try:
            _plan_arrays(cluster)
            split_large_arrays(cluster=cluster, at=timezone.now())
            submission = dispatch.claim_next(cluster=cluster, at=timezone.now())
            if submission is None:
                started = start_next(cluster=cluster, at=timezone.now())
                if started is None:
                    return
                continue
        except SchedulerError as error:
            log.warning("cluster %s: %s", cluster, error)
            return

        sent = dispatch.send(submission=submission, at=timezone.now())
        # The cluster may have the jobs or not: find out before any more are submitted.
        if sent.state == SubmissionState.UNKNOWN:
            return


def _plan_arrays(cluster: Cluster) -> None:
    """Plan the next arrays of each request that is assigned to the cluster."""
    assignments = Assignment.objects.filter(cluster=cluster, request__state__in=SENDABLE)
    for assignment in assignments.select_related("request", "cluster"):
        try:
            plan_next(assignment=assignment, at=timezone.now())
        except InvalidFields as error:
            log.warning("%s cannot be submitted: %s", assignment.request, error)
