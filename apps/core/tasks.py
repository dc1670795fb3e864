"""Celery tasks: the outbox and the heartbeat of beat."""

from collections.abc import Callable
from functools import wraps
from inspect import signature
from typing import Any

from celery import shared_task
from django.utils import timezone

from apps.core.domain import health, outbox
from apps.core.models import Delivery


def task_of(function: Callable[..., object]) -> Any:
    """Make a task of a domain function that takes the time `at`; it has the function's full name.

    Raises `TypeError` at once for another function, whose task would always fail.
    """
    if "at" not in signature(function).parameters:
        raise TypeError(f"{function.__qualname__} takes no time: at")

    @shared_task
    @wraps(function)
    def call(**given: Any) -> None:
        function(**given, at=timezone.now())

    return call


task_of(outbox.deliver)
task_of(outbox.drop_old_deliveries)


@shared_task
def deliver_waiting() -> None:
    """Deliver everything due: lost messages and retries."""
    now = timezone.now()
    due = Delivery.objects.filter(delivered_at=None, due_at__lte=now).order_by("due_at")
    for pk in list(due.values_list("pk", flat=True)[:500]):
        outbox.deliver(delivery_id=pk, at=timezone.now())


@shared_task
def beat_heart() -> None:
    """Sent by beat, done by a worker: so its age tells whether the queue carries messages."""
    health.beat_heart(name=health.QUEUE, at=timezone.now())
