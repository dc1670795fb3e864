"""Celery tasks that submit jobs."""

import logging

from celery import shared_task
from django.utils import timezone

from apps.clusters.models import Cluster
from apps.clusters.schedulers.base import SchedulerError
from apps.core.domain.locks import exclusive_lock
from apps.core.errors import InvalidFields
from apps.submission.domain.arrays.limits import cut_planned
from apps.submission.domain.arrays.plan import plan_next
from apps.submission.domain.arrays.submissions import SENDABLE, clusters_to_look_at
from apps.submission.domain.arrays.trials import end_kept_up, judge_tests
from apps.submission.domain.dispatch import dispatch
from apps.submission.domain.dispatch.recall import recall_sent
from apps.submission.domain.dispatch.start import start_next
from apps.submission.domain.retries.owned import note_owned, send_owned
from apps.submission.domain.retries.release import BATCHES, advance_batch
from apps.submission.enums import SubmissionState
from apps.submission.models import Assignment

log = logging.getLogger(__name__)

#: Arrays per run; the next run continues.
MOST_A_RUN = 20


@shared_task(name="submission.send_all")
def send_all() -> None:
    """Start a task for every cluster that has or may get jobs of the portal."""
    for pk in clusters_to_look_at().values_list("pk", flat=True):
        send_to.delay(cluster_id=pk)


@shared_task(name="submission.release_retries")
def release_retries() -> None:
    """Release the next step of each batch of retries, and count the outcomes of earlier steps."""
    for batch in BATCHES.due(timezone.now()):
        advance_batch(batch=batch, at=timezone.now())


@shared_task(name="submission.send_to")
def send_to(*, cluster_id: int) -> None:
    """Count finished jobs on a cluster, find lost ones, and submit what is due.

    Arrays are submitted in the order of the queue.
    """
    cluster = Cluster.objects.filter(pk=cluster_id).first()
    if cluster is None:
        return
    # Not waiting: a cluster that hangs must not block more than one worker.
    with exclusive_lock(dispatch.SENDING_LOCK, cluster.pk) as alone:
        if not alone:
            return
        dispatch.refresh_progress(cluster=cluster, at=timezone.now())
        dispatch.look_for_lost(cluster=cluster, at=timezone.now())
        recall_sent(cluster=cluster, at=timezone.now())
        try:
            end_kept_up(cluster=cluster, at=timezone.now())
            judge_tests(cluster=cluster, at=timezone.now())
        except SchedulerError as error:
            log.warning("cluster %s: %s", cluster, error)
        note_owned(cluster=cluster)
        send_owned(cluster=cluster, at=timezone.now())
        _send_due(cluster)


def _send_due(cluster: Cluster) -> None:
    """Submit what is due, then start the next request in the queue if there is capacity."""
    for _ in range(MOST_A_RUN):
        try:
            _plan(cluster)
            cut_planned(cluster=cluster, at=timezone.now())
            submission = dispatch.claim_next(cluster=cluster, at=timezone.now())
            if submission is None and start_next(cluster=cluster, at=timezone.now()) is None:
                return
        except SchedulerError as error:
            log.warning("cluster %s: %s", cluster, error)
            return
        if (
            submission
            and dispatch.send(submission=submission, at=timezone.now()).state
            == SubmissionState.UNKNOWN
        ):
            return


def _plan(cluster: Cluster) -> None:
    assignments = Assignment.objects.filter(cluster=cluster, request__state__in=SENDABLE)
    for assignment in assignments.select_related("request", "cluster"):
        try:
            plan_next(assignment=assignment, at=timezone.now())
        except InvalidFields as error:
            log.warning("%s cannot be submitted: %s", assignment.request, error)
