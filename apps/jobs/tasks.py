"""Celery tasks: collection of clusters, and totals."""

from celery import shared_task
from django.utils import timezone

from apps.clusters.models import Cluster
from apps.core.domain.background import enqueue
from apps.jobs.domain.collection.accounting import collect_finished_jobs
from apps.jobs.domain.collection.flagged import forget_flagged
from apps.jobs.domain.hosts import read_hosts
from apps.jobs.domain.months.retention import drop_due_months
from apps.jobs.domain.phases.stuck import find_stuck_phases
from apps.jobs.domain.phases.totals import recount_phases
from apps.jobs.domain.totals.rollups import recompute_dirty_hours


@shared_task(name="jobs.collect_all")
def collect_all() -> None:
    """Start a task for each cluster, so that slow ones do not delay others."""
    for pk in Cluster.objects.filter(collects=True).values_list("pk", flat=True):
        enqueue("jobs.collect_cluster", cluster_id=pk)


@shared_task(name="jobs.collect_cluster")
def collect_cluster(*, cluster_id: int) -> None:
    cluster = Cluster.objects.filter(pk=cluster_id, collects=True).first()
    if cluster is not None:
        collect_finished_jobs(cluster=cluster, at=timezone.now())


@shared_task(name="jobs.read_all_hosts")
def read_all_hosts() -> None:
    for cluster in Cluster.objects.filter(collects=True):
        read_hosts(cluster=cluster, at=timezone.now())


@shared_task(name="jobs.recompute_totals")
def recompute_totals() -> None:
    recompute_dirty_hours(at=timezone.now())


@shared_task(name="jobs.sum_months", soft_time_limit=1_800, time_limit=2_000)
def sum_months() -> None:
    """Sum the statistics of finished months, which takes a minute for millions of jobs."""
    # Imported here, because most workers never use NumPy.
    from apps.jobs.domain.statistics.monthly import compact_months

    compact_months(at=timezone.now())


@shared_task(name="jobs.find_stuck")
def find_stuck() -> None:
    find_stuck_phases(at=timezone.now())


@shared_task(name="jobs.forget_flagged_jobs")
def forget_flagged_jobs() -> None:
    forget_flagged(at=timezone.now())


@shared_task(name="jobs.drop_old_months", soft_time_limit=6 * 3600, time_limit=7 * 3600)
def drop_old_months() -> None:
    """Archive and drop a month of job records, which takes minutes for millions of jobs."""
    drop_due_months(at=timezone.now())


@shared_task(name="jobs.recount_phase_totals")
def recount_phase_totals() -> None:
    recount_phases()
