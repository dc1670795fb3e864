"""Events are delivered once, whatever fails on the way."""

from datetime import timedelta

import pytest
from django.db import IntegrityError, InternalError, connection, transaction
from django.db.utils import ProgrammingError

from apps.core import tasks
from apps.core.domain import event_kinds, events, subscriptions
from apps.core.domain.event_kinds import EventKind
from apps.core.domain.outbox import deliver, drop_old_deliveries
from apps.core.models import Delivery, Event, Heartbeat


@pytest.fixture
def subscriber(monkeypatch):
    """A subscriber of `thing.happened` that notes what it was told and fails as often as asked."""
    subscriptions.load_subscribers()
    monkeypatch.setattr(subscriptions, "_handlers", dict(subscriptions._handlers))
    monkeypatch.setattr(subscriptions, "_by_kind", dict(subscriptions._by_kind))
    kind = EventKind("thing.happened", "did a thing", "happened")
    monkeypatch.setitem(event_kinds._kinds, "thing.happened", kind)
    told: list[int] = []
    failures: list[Exception] = []

    @subscriptions.subscribe("test.note", "thing.happened")
    def note(event: Event) -> None:
        Heartbeat.objects.create(name=f"told {event.pk}", at=event.at)
        if failures:
            raise failures.pop()
        told.append(event.pk)

    return told, failures


def publish(at):
    target = Heartbeat.objects.create(name=f"thing {Heartbeat.objects.count()}", at=at)
    return events.publish(
        kind="thing.happened", target=target, by="test", at=at, old="a", new="b", reason="why"
    )


def test_publish_delivers_once_on_commit(db, at, subscriber, django_capture_on_commit_callbacks):
    told, _ = subscriber
    with django_capture_on_commit_callbacks() as sends:
        event = publish(at)
    assert len(sends) == 1
    delivery = Delivery.objects.get()
    assert deliver(delivery_id=delivery.pk, at=at)
    assert not deliver(delivery_id=delivery.pk, at=at)
    assert told == [event.pk]


def test_failed_subscriber_leaves_nothing_and_is_tried_again(db, at, subscriber):
    told, failures = subscriber
    failures.append(RuntimeError("no luck"))
    event = publish(at)
    delivery = Delivery.objects.get()
    assert not deliver(delivery_id=delivery.pk, at=at)
    delivery.refresh_from_db()
    assert (delivery.attempts, delivery.delivered_at) == (1, None)
    assert delivery.last_error == "RuntimeError: no luck"
    assert delivery.due_at == at + timedelta(seconds=5)
    assert not Heartbeat.objects.filter(name__startswith="told").exists()
    assert deliver(delivery_id=delivery.pk, at=at)
    assert told == [event.pk]


def test_old_event_of_a_subscriber_is_due_when_it_is_published(db, at, subscriber):
    long_ago = at - timedelta(days=60)
    published = []

    @subscriptions.subscribe("test.follow", "thing.happened")
    def follow(event: Event) -> None:
        if not published:
            published.append(publish(event.at))

    publish(long_ago)
    delivery = Delivery.objects.get(subscriber="test.follow")
    assert deliver(delivery_id=delivery.pk, at=at)
    [followed] = published
    assert followed.at == long_ago
    assert set(followed.deliveries.values_list("due_at", flat=True)) == {at}
    other = publish(long_ago)
    assert set(other.deliveries.values_list("due_at", flat=True)) == {long_ago}


def test_sweep_delivers_what_was_never_sent(db, at, subscriber):
    told, _ = subscriber
    first, second = publish(at), publish(at)
    tasks.deliver_waiting()
    tasks.deliver_waiting()
    assert told == [first.pk, second.pk]


def test_subscriber_that_is_gone_is_recorded(db, at, subscriber):
    publish(at)
    del subscriptions._handlers["test.note"]
    deliver(delivery_id=Delivery.objects.get().pk, at=at)
    assert "no subscriber is named test.note" in Delivery.objects.get().last_error


def test_two_subscribers_of_one_name_are_refused(subscriber):
    with pytest.raises(ValueError, match=r"two subscribers are named test\.note"):
        subscriptions.subscribe("test.note", "other")(lambda event: None)


@pytest.mark.parametrize(
    "statement",
    [
        "update core_event set actor = 'x'",
        "delete from core_event",
        "set local opsportal.removes_person = 'yes'; update core_event set kind = 'x'",
        "set local opsportal.removes_person = 'yes'; delete from core_event",
    ],
)
def test_event_cannot_be_changed(db, at, subscriber, statement):
    publish(at)
    with (
        pytest.raises((InternalError, ProgrammingError, IntegrityError), match=r"append-only"),
        transaction.atomic(),
        connection.cursor() as cursor,
    ):
        cursor.execute(statement)
    assert Event.objects.get().actor == "test"


def test_deliveries_are_dropped_a_month_after_they_were_made(db, at, subscriber):
    made, waiting = publish(at), publish(at)
    assert deliver(delivery_id=made.deliveries.get().pk, at=at)
    assert drop_old_deliveries(at=at + timedelta(days=29)) == 0
    assert drop_old_deliveries(at=at + timedelta(days=31)) == 1
    assert Delivery.objects.get().event == waiting
    assert Event.objects.filter(kind="thing.happened").count() == 2
