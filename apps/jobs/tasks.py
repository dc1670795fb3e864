"""Celery tasks: collecting from each cluster, and the totals."""

from celery import shared_task
from django.utils import timezone

from apps.clusters.models import Cluster
from apps.core.queue import enqueue
from apps.jobs import following, services, share_use, stage_history


@shared_task
def collect_all() -> None:
    """Send one task for each cluster, so that a slow one keeps no other waiting."""
    for pk in Cluster.objects.filter(collects=True).values_list("pk", flat=True):
        enqueue("apps.jobs.tasks.collect_cluster", cluster_id=pk)


@shared_task
def collect_cluster(*, cluster_id: int) -> None:
    cluster = Cluster.objects.filter(pk=cluster_id, collects=True).first()
    if cluster is not None:
        services.collect_finished_jobs(cluster=cluster, at=timezone.now())


@shared_task
def recompute_totals() -> None:
    services.recompute_dirty_hours(at=timezone.now())


@shared_task
def count_stage_history() -> None:
    """Count what the jobs of requests took, where they have changed; estimates rest on it."""
    stage_history.count_changed(at=timezone.now())


@shared_task
def follow_requests() -> None:
    following.follow_requests(at=timezone.now())


@shared_task
def count_share_use() -> None:
    """Sum what each experiment used of production lately."""
    share_use.count_share_use(at=timezone.now())
