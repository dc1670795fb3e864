"""Celery tasks of excluded hosts. Each may be lost, killed or run twice."""

from celery import shared_task
from django.utils import timezone

from apps.clusters.models import Cluster
from apps.core.domain.locks import exclusive_lock
from apps.hosts.domain.automatic import exclude_failing_hosts
from apps.hosts.domain.exclusions import end_expired_exclusions
from apps.hosts.domain.history import follow_host_states, forget_host_spans
from apps.hosts.domain.probes.probe_jobs import (
    PROBING_LOCK,
    clusters_with_probe_jobs,
    forget_probe_jobs,
    give_up_on_probe_jobs,
    plan_probe_jobs,
    send_probe_jobs,
)


@shared_task(name="hosts.follow")
def follow() -> None:
    """End exclusions that have expired, and exclude hosts on which nearly every job fails."""
    end_expired_exclusions(at=timezone.now())
    exclude_failing_hosts(at=timezone.now())


@shared_task(name="hosts.follow_states")
def follow_states() -> None:
    """Store which hosts have changed their state since the last look at them."""
    follow_host_states()


@shared_task(name="hosts.probe")
def probe() -> None:
    """Plan the probe jobs that are due, and start a task for every cluster that has some."""
    plan_probe_jobs(at=timezone.now())
    for pk in clusters_with_probe_jobs().values_list("pk", flat=True):
        probe_on.delay(cluster_id=pk)


@shared_task(name="hosts.probe_on")
def probe_on(*, cluster_id: int) -> None:
    """Submit the probe jobs of a cluster, and end those that did not report in time."""
    cluster = Cluster.objects.filter(pk=cluster_id).first()
    if cluster is None:
        return
    # Do not wait for the lock: a cluster that hangs must not block more than one worker.
    with exclusive_lock(PROBING_LOCK, cluster.pk) as is_ours:
        if is_ours:
            give_up_on_probe_jobs(cluster=cluster, at=timezone.now())
            send_probe_jobs(cluster=cluster, now=timezone.now)


@shared_task(name="hosts.drop_old_probe_jobs")
def drop_old_probe_jobs() -> None:
    """Delete old probe jobs and their results."""
    forget_probe_jobs(at=timezone.now())


@shared_task(name="hosts.drop_old_history")
def drop_old_history() -> None:
    """Delete spans of host states that ended long ago."""
    forget_host_spans(at=timezone.now())
