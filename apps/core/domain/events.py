"""Publish and read events."""

from collections.abc import Collection, Iterator, Sequence
from datetime import datetime, timedelta
from typing import Any

from django.apps import apps
from django.contrib.auth import get_user_model
from django.contrib.auth.base_user import AbstractBaseUser
from django.db import connection, models, transaction
from django.db.models import QuerySet

from apps.core.domain.event_kinds import kind_named, what_was_done
from apps.core.domain.outbox import create_deliveries
from apps.core.models import Event

#: A transaction writes its events with their times, and others may see them this much later.
SETTLED = timedelta(minutes=5)
_CHUNK = 2_000


def events_of(target: models.Model) -> QuerySet[Event]:
    """Return the events of one object, oldest first."""
    return Event.objects.filter(
        target_type=target._meta.label_lower, target_id=str(target.pk)
    ).order_by("id")


def target_of(event: Event) -> Any:
    """Return the object that an event is about; None if it was deleted."""
    return apps.get_model(event.target_type)._base_manager.filter(pk=event.target_id).first()


def publish(
    *,
    kind: str,
    target: models.Model,
    by: AbstractBaseUser | str,
    at: datetime,
    old: str = "",
    new: str = "",
    reason: str = "",
    data: dict[str, Any] | None = None,
) -> Event:
    """Write one event and its deliveries, in the caller's transaction.

    There is one delivery for each subscriber of the kind. `by` is a user or the name of a
    component. Raises `UndeclaredEvent`.
    """
    event = new_event(
        kind=kind, target=target, by=by, at=at, old=old, new=new, reason=reason, data=data
    )
    publish_all(events=[event])
    return event


def publish_all(*, events: Sequence[Event]) -> None:
    """Write new events and their deliveries in two statements, in the caller's transaction."""
    Event.objects.bulk_create(events)
    create_deliveries(events=events)


@transaction.atomic
def rename_in_events(person: AbstractBaseUser, new_name: str) -> int:
    """Replace the name of a person who is removed, in all events; return in how many.

    Nothing else of an event can be changed: the database refuses it.
    """
    about_person = Event.objects.filter(
        target_type=person._meta.label_lower, target_id=str(person.pk)
    )
    by_person = Event.objects.filter(actor=person.get_username())
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL opsportal.removes_person = 'yes'")
        renamed = about_person.update(target_label=new_name)
        renamed += by_person.update(actor=new_name)
        cursor.execute("SET LOCAL opsportal.removes_person = 'no'")
    return renamed


def new_event(
    *,
    kind: str,
    target: models.Model,
    by: AbstractBaseUser | str,
    at: datetime,
    old: str = "",
    new: str = "",
    reason: str = "",
    data: dict[str, Any] | None = None,
) -> Event:
    """Return an unsaved event for `publish_all`. Raises `UndeclaredEvent`."""
    kind_named(kind)
    return Event(
        kind=kind,
        target_type=target._meta.label_lower,
        target_id=str(target.pk),
        target_label=str(target)[:200],
        actor=str(by)[:150],
        at=at,
        old=old,
        new=new,
        reason=reason,
        data=data or {},
    )


def select_people() -> QuerySet[Any, Any]:
    """Return the actors who are users; the others are components such as `opsportal`."""
    return get_user_model().objects.values("username")


def exported_events(
    *,
    at: datetime,
    after: int = 0,
    since: datetime | None = None,
    until: datetime | None = None,
    kinds: Collection[str] = (),
    only_people: bool = False,
) -> Iterator[dict[str, Any]]:
    """Return events as objects for JSON in the order of their IDs, those after an ID alone.

    Events of the last `SETTLED` are left out: an ID below those that were exported could still
    appear. `since` is inclusive, `until` exclusive.
    """
    events = Event.objects.filter(pk__gt=after, at__lt=min(until or at, at - SETTLED))
    if since:
        events = events.filter(at__gte=since)
    if kinds:
        events = events.filter(kind__in=kinds)
    if only_people:
        events = events.filter(actor__in=select_people())
    for event in events.order_by("pk").iterator(chunk_size=_CHUNK):
        yield {
            "id": event.pk,
            "at": event.at,
            "actor": event.actor,
            "kind": event.kind,
            "did": what_was_done(event),
            "target_type": event.target_type,
            "target_id": event.target_id,
            "target": event.target_label,
            "old": event.old,
            "new": event.new,
            "reason": event.reason,
            "data": event.data,
        }
