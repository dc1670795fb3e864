"""Celery tasks: the outbox and the heartbeat of beat."""

from celery import shared_task
from django.utils import timezone

from apps.core.domain import health, outbox, storage


@shared_task(name="core.deliver")
def deliver(*, delivery_id: int) -> None:
    outbox.deliver(delivery_id=delivery_id, at=timezone.now())


@shared_task(name="core.drop_old_deliveries")
def drop_old_deliveries() -> None:
    outbox.drop_old_deliveries(at=timezone.now())


@shared_task(name="core.deliver_waiting")
def deliver_waiting() -> None:
    """Deliver everything that is due: retries, and events whose message was lost."""
    due = outbox.EVENTS.due(timezone.now())
    for pk in list(due.values_list("pk", flat=True)[:500]):
        outbox.deliver(delivery_id=pk, at=timezone.now())


@shared_task(name="core.beat_heart")
def beat_heart() -> None:
    """Record that a worker received a message from beat; its age shows whether the queue works."""
    health.beat_heart(name=health.QUEUE, at=timezone.now())


@shared_task(name="core.forget_retired")
def forget_retired() -> None:
    health.forget_retired(at=timezone.now())


@shared_task(name="core.measure_tables")
def measure_tables() -> None:
    storage.measure_tables(at=timezone.now())
