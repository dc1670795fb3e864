"""Celery task: delete old idempotency keys."""

from celery import shared_task
from django.utils import timezone

from apps.api import domain


@shared_task(name="api.drop_old_calls")
def drop_old_calls() -> None:
    domain.drop_old_calls(at=timezone.now())
