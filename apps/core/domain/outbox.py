"""Delivery of events to subscribers."""

from collections.abc import Iterable
from datetime import datetime, timedelta

from django.db.models import Q

from apps.core.domain import subscriptions
from apps.core.domain.background import enqueue
from apps.core.domain.work import BackOff, Queue
from apps.core.models import Delivery, Event

EVENTS = Queue(
    name="events",
    title="Events to subscribers",
    model=Delivery,
    unfinished_rows=Q(delivered_at=None),
    back_off=BackOff((5, 30, 120, 600, 3600)),
)

#: How long deliveries are kept after they were made.
KEEP = timedelta(days=30)


def create_deliveries(*, events: Iterable[Event]) -> None:
    """Create a delivery of each event for each subscriber of its kind."""
    waiting = []
    for event in events:
        for name in subscriptions.subscribers_of(event.kind):
            waiting.append(Delivery(event=event, subscriber=name, due_at=event.at))
    for delivery in Delivery.objects.bulk_create(waiting):
        enqueue("core.deliver", delivery_id=delivery.pk)


def defer_deliveries(*, at: datetime) -> int:
    """Count waiting deliveries that were due before `at` as due at `at`; return their number.

    For loaders of past data: the events are dated back, their deliveries are not late.
    """
    return EVENTS.unfinished().filter(due_at__lt=at).update(due_at=at)


def deliver(*, delivery_id: int, at: datetime) -> bool:
    """Call the subscriber of one delivery; return whether it succeeded.

    The subscriber runs in the transaction that marks the delivery done, so its writes happen once,
    however often this is called. A failure is recorded and retried later.
    """

    def call_subscriber(delivery: Delivery) -> None:
        subscriptions.handler(delivery.subscriber)(delivery.event)
        delivery.delivered_at = at
        delivery.last_error = ""
        delivery.save(update_fields=["delivered_at", "last_error"])

    deliveries = EVENTS.unfinished().filter(pk=delivery_id).select_related("event")
    return EVENTS.process(deliveries, call_subscriber, at=at) is not None


def drop_old_deliveries(*, at: datetime) -> int:
    """Delete old deliveries in batches; events and undelivered ones stay."""
    old = Delivery.objects.filter(delivered_at__lt=at - KEEP).order_by("pk").values("pk")
    dropped = 0
    while count := Delivery.objects.filter(pk__in=old[:10_000]).delete()[0]:
        dropped += count
    return dropped
