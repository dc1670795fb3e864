"""The audit trail for other systems: events as JSON, oldest first."""

from collections.abc import Collection, Iterator
from datetime import datetime, timedelta
from typing import Any

from django.contrib.auth import get_user_model
from django.db.models import QuerySet

from apps.core.domain.event_kinds import what_was_done
from apps.core.models import Event

#: A transaction writes its events with their times, and others may see them this much later.
SETTLED = timedelta(minutes=5)
_CHUNK = 2_000


def people() -> QuerySet[Any, Any]:
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
        events = events.filter(actor__in=people())
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
