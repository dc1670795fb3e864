"""Celery tasks of the archive."""

import logging
import os
import time
from typing import Any

from celery import Task, current_app, shared_task
from celery.signals import worker_process_init, worker_process_shutdown
from django.utils import timezone

from apps.archive import delivery
from apps.archive.domain import links, masking_trials, retention
from apps.archive.domain.intake import QUEUE, wake_workers
from apps.archive.domain.search import word_index
from apps.clusters.models import Cluster
from apps.clusters.schedulers.base import SchedulerError
from apps.core.domain.background import enqueue
from apps.jobs.domain.live import queue

log = logging.getLogger(__name__)

#: Words are indexed for no longer than this at a time, so that other tasks get their turn.
INDEX_SECONDS = 8
#: Number of batches of expired jobs to delete before other tasks get their turn.
EXPIRY_BATCHES = 20
#: How long a worker routes batches before it takes its next message.
TURN_SECONDS = 5
PAUSE_SECONDS = 0.2
_NICE = 5


@shared_task(name="archive.archive_batches", bind=True)
def archive_batches(self: Task) -> None:
    """Deliver what was received to the sinks of the message's queue, until all is delivered.

    All workers of a queue may do so at once; the messages are interchangeable.
    """
    queue = (self.request.delivery_info or {}).get("routing_key") or QUEUE
    ends = time.monotonic() + TURN_SECONDS
    while time.monotonic() < ends:
        delivery.route_batches()
        due = delivery.due_sinks(at=timezone.now())
        for elsewhere in {delivery.queue_of(sink.url) for sink in due} - {QUEUE, queue}:
            wake_workers(elsewhere)
        ours = [sink for sink in due if delivery.queue_of(sink.url) == queue]
        if not ours:
            return
        wrote = [delivery.deliver(sink=sink, at=timezone.now()) for sink in ours]
        if not any(wrote):  # other workers are at it: there may be more soon
            time.sleep(PAUSE_SECONDS)
    wake_workers(queue)


@worker_process_init.connect
def on_worker_process_init(**_: Any) -> None:
    """Let web server, other workers and capture of this host go first: what waits here is safe."""
    if all(queue.startswith(QUEUE) for queue in current_app.amqp.queues.consume_from):
        os.nice(_NICE)


@worker_process_shutdown.connect
def on_worker_process_shutdown(**_: Any) -> None:
    delivery.close_sinks()


@shared_task(name="archive.continue_masking_trial")
def continue_masking_trial(*, trial_id: int) -> None:
    masking_trials.continue_trial(trial_id=trial_id, at=timezone.now())


@shared_task(name="archive.continue_lost_masking_trials")
def continue_lost_masking_trials() -> None:
    masking_trials.continue_lost_trials(at=timezone.now())


@shared_task(name="archive.index_words")
def index_words() -> None:
    word_index.index_for(seconds=INDEX_SECONDS, at=timezone.now())


@shared_task(name="archive.describe_captured")
def describe_captured() -> None:
    """Send one task for each cluster, so that a slow one keeps no other waiting."""
    for pk in Cluster.objects.values_list("pk", flat=True):
        enqueue("archive.describe_cluster", cluster_id=pk)


@shared_task(name="archive.describe_cluster")
def describe_cluster(*, cluster_id: int) -> None:
    cluster = Cluster.objects.filter(pk=cluster_id).first()
    if cluster is None:
        return
    try:
        links.describe_jobs(cluster=cluster, at=timezone.now())
    except SchedulerError as error:  # what is missing comes with accounting, or a minute later
        log.info("cluster %s cannot be asked for its jobs: %s", cluster.name, error)


@shared_task(name="archive.delete_expired")
def delete_expired() -> None:
    """Delete some, and go on in a task of its own where there is more."""
    if retention.delete_expired(by="retention", at=timezone.now(), batches=EXPIRY_BATCHES):
        enqueue("archive.delete_expired")


@shared_task(name="archive.read_queues")
def read_queues() -> None:
    """Send one task for each cluster, so that a slow one keeps no other waiting."""
    for pk in Cluster.objects.filter(collects=True).values_list("pk", flat=True):
        enqueue("archive.read_queue", cluster_id=pk)


@shared_task(name="archive.read_queue")
def read_queue(*, cluster_id: int) -> None:
    """Read the waiting and running jobs of a cluster; their requests are known from the capture."""
    if cluster := Cluster.objects.filter(pk=cluster_id).first():
        queue.read_queue(cluster=cluster, origins_of=links.captured_origins, at=timezone.now())
