"""Celery tasks of excluded hosts. Each may be lost, killed or run twice."""

from celery import shared_task
from django.utils import timezone

from apps.hosts.domain.automatic import exclude_failing_hosts
from apps.hosts.domain.exclusions import end_expired_exclusions


@shared_task(name="hosts.follow")
def follow() -> None:
    """End exclusions that have expired, and exclude hosts on which nearly every job fails."""
    end_expired_exclusions(at=timezone.now())
    exclude_failing_hosts(at=timezone.now())
