"""Celery tasks of excluded hosts. Each may be lost, killed or run twice."""

from celery import shared_task
from django.utils import timezone

from apps.hosts.domain.automatic import exclude_failing_hosts
from apps.hosts.domain.exclusions import end_expired_exclusions
from apps.hosts.domain.probes.probe_jobs import (
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


@shared_task(name="hosts.probe")
def probe() -> None:
    """Plan and submit the probe jobs that are due, and end those that did not report in time."""
    give_up_on_probe_jobs(at=timezone.now())
    plan_probe_jobs(at=timezone.now())
    send_probe_jobs(at=timezone.now())


@shared_task(name="hosts.drop_old_probe_jobs")
def drop_old_probe_jobs() -> None:
    """Delete old probe jobs and their results."""
    forget_probe_jobs(at=timezone.now())
