"""Celery tasks: forgetting what has expired."""

from celery import shared_task
from django.utils import timezone

from apps.accounts import domain


@shared_task
def forget_expired() -> None:
    domain.forget_expired(at=timezone.now())
