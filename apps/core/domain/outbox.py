"""Delivery of events to subscribers."""

from collections.abc import Iterable
from contextvars import ContextVar
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

#: The time of the delivery whose subscriber runs; None outside of one.
_delivering_at: ContextVar[datetime | None] = ContextVar("delivering_at", default=None)

#: How long deliveries are kept after they were made.
KEEP = timedelta(days=30)


def create_deliveries(*, events: Iterable[Event]) -> None:
    """Create a delivery of each event for each subscriber of its kind.

    Subscribers date their events like the one that they hear, which may be old: the deliveries of
    these are due only now.
    """
    now = _delivering_at.get()
    waiting = []
    for event in events:
        due_at = max(event.at, now) if now else event.at
        for name in subscriptions.subscribers_of(event.kind):
            waiting.append(Delivery(event=event, subscriber=name, due_at=due_at))
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
        token = _delivering_at.set(at)
        try:
            subscriptions.handler(delivery.subscriber)(delivery.event)
        finally:
            _delivering_at.reset(token)
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
