"""Delivery of events to subscribers."""

import logging
from collections.abc import Iterable
from datetime import datetime, timedelta

from django.db import transaction

from apps.core.domain import subscriptions
from apps.core.domain.background import enqueue
from apps.core.models import Delivery, Event

log = logging.getLogger(__name__)

#: Wait before the next attempt, by the number of attempts made; the last one repeats.
BACK_OFF_SECONDS = (0, 5, 30, 120, 600, 3600)

#: How long deliveries are kept after they were made.
KEEP = timedelta(days=30)


def create_deliveries(*, events: Iterable[Event]) -> None:
    """Create a delivery of each event for each subscriber of its kind."""
    waiting = [
        Delivery(event=event, subscriber=name, due_at=event.at)
        for event in events
        for name in subscriptions.subscribers_of(event.kind)
    ]
    for delivery in Delivery.objects.bulk_create(waiting):
        enqueue("core.deliver", delivery_id=delivery.pk)


def deliver(*, delivery_id: int, at: datetime) -> bool:
    """Call the subscriber of one delivery; return whether it succeeded.

    The subscriber runs in the transaction that marks the delivery done, so its writes happen once,
    however often this is called. A failure is recorded and retried later.
    """
    try:
        with transaction.atomic():
            delivery = (
                Delivery.objects.select_for_update(skip_locked=True, of=("self",))
                .select_related("event")
                .filter(pk=delivery_id, delivered_at=None)
                .first()
            )
            if delivery is None:
                return False
            subscriptions.handler(delivery.subscriber)(delivery.event)
            delivery.delivered_at = at
            delivery.attempts += 1
            delivery.last_error = ""
            delivery.save(update_fields=["delivered_at", "attempts", "last_error"])
            return True
    except Exception as error:  # a failing subscriber must not stop other deliveries
        log.exception("delivery %s failed", delivery_id)
        _reschedule(delivery_id, error, at)
        return False


def _reschedule(delivery_id: int, error: Exception, at: datetime) -> None:
    with transaction.atomic():
        delivery = Delivery.objects.select_for_update().get(pk=delivery_id)
        delivery.attempts += 1
        wait = BACK_OFF_SECONDS[min(delivery.attempts, len(BACK_OFF_SECONDS) - 1)]
        delivery.due_at = at + timedelta(seconds=wait)
        delivery.last_error = f"{type(error).__name__}: {error}"[:2000]
        delivery.save(update_fields=["attempts", "due_at", "last_error"])


def drop_old_deliveries(*, at: datetime) -> int:
    """Delete old deliveries in batches; events and undelivered ones stay."""
    old = Delivery.objects.filter(delivered_at__lt=at - KEEP).order_by("pk").values("pk")
    dropped = 0
    while count := Delivery.objects.filter(pk__in=old[:10_000]).delete()[0]:
        dropped += count
    return dropped
