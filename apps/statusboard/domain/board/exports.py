"""Export the board as headline, summary.json of Statuspage, iCalendar, Atom feed and badge."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db.models import Q, QuerySet
from django.utils.feedgenerator import Atom1Feed

from apps.core.domain.hidden_characters import mark_hidden
from apps.statusboard.domain.board.board import BoardRow, read_board
from apps.statusboard.domain.incidents.incidents import open_incidents
from apps.statusboard.domain.maintenance.windows import windows_ahead
from apps.statusboard.enums import Cause, NoteKind, State, worst
from apps.statusboard.models import DowntimeWindow, Incident

#: How long past windows stay in the calendar.
PAST = timedelta(days=90)
#: Maximum entries of the Atom feed.
MOST_ENTRIES = 100

#: Statuspage has no unknown state. Such a service is exported as degraded, never as operational.
_COMPONENTS = {
    State.UP: "operational",
    State.DEGRADED: "degraded_performance",
    State.DOWN: "major_outage",
    State.MAINTENANCE: "under_maintenance",
    State.UNKNOWN: "degraded_performance",
}
_INDICATORS = {
    State.UP: ("none", "All services work"),
    State.DEGRADED: ("minor", "Some services are degraded"),
    State.DOWN: ("major", "Some services are down"),
    State.MAINTENANCE: ("maintenance", "Maintenance in progress"),
    State.UNKNOWN: ("minor", "The state of some services is unknown"),
}


def list_monitored(at: datetime) -> list[BoardRow]:
    """Return the monitored services that have a state of their own."""
    return _monitored(read_board(at, days=0))


def _monitored(rows: Iterable[BoardRow]) -> list[BoardRow]:
    return [row for row in rows if row.has_own_state and row.cause != Cause.NOT_MONITORED]


def headline(rows: Iterable[BoardRow]) -> tuple[State, str]:
    """Return the worst state of a board, and a sentence that describes it."""
    state = worst([row.own for row in _monitored(rows)])
    return state, _INDICATORS[state][1]


def statuspage_summary(at: datetime) -> dict[str, Any]:
    """Return the board as Statuspage's summary.json. Runs a constant number of queries."""
    rows = list_monitored(at)
    state, description = headline(rows)
    incidents = open_incidents().prefetch_related("notes")
    windows = windows_ahead(at)
    components = []
    for row in rows:
        components.append(
            {
                "id": row.service.slug,
                "name": row.service.name,
                "status": _COMPONENTS[row.own],
                "updated_at": (row.since or at).isoformat(),
                "description": row.service.kind or None,
                "group": False,
            }
        )
    return {
        "page": {
            "id": "opsportal",
            "name": "opsportal",
            "time_zone": "Etc/UTC",
            "updated_at": at.isoformat(),
        },
        "status": {"indicator": _INDICATORS[state][0], "description": description},
        "components": components,
        "incidents": [_incident(incident) for incident in incidents[:100]],
        "scheduled_maintenances": [_maintenance(window, at) for window in windows[:100]],
    }


def _incident(incident: Incident) -> dict[str, Any]:
    updates = []
    for note in reversed(incident.notes.all()):
        if note.kind == NoteKind.UPDATE:
            updates.append(
                {"id": str(note.pk), "body": note.text, "created_at": note.at.isoformat()}
            )
    return {
        "id": str(incident.pk),
        "name": incident.title,
        "status": "identified" if incident.acknowledged_at else "investigating",
        "impact": "major" if incident.state == State.DOWN else "minor",
        "started_at": incident.started_at.isoformat(),
        "resolved_at": None,
        "components": [{"id": incident.service.slug, "name": incident.service.name}],
        "incident_updates": updates,
    }


def _maintenance(window: DowntimeWindow, at: datetime) -> dict[str, Any]:
    return {
        "id": str(window.pk),
        "name": window.title,
        "status": "in_progress" if window.starts_at <= at else "scheduled",
        "scheduled_for": window.starts_at.isoformat(),
        "scheduled_until": window.ends_at.isoformat(),
        "components": [
            {"id": service.slug, "name": service.name} for service in window.services.all()
        ],
    }


def write_calendar(at: datetime, host: str) -> bytes:
    """Return the maintenance windows as iCalendar.

    Cancelled ones are included, so that calendars remove them.
    """
    from icalendar import Calendar, Event

    calendar = Calendar()
    calendar.add("prodid", "-//opsportal//maintenance//EN")
    calendar.add("version", "2.0")
    calendar.add("x-wr-calname", "Maintenance")
    windows = (
        DowntimeWindow.objects.filter(ends_at__gt=at - PAST)
        .prefetch_related("services")
        .order_by("starts_at", "pk")
    )
    for window in windows:
        event = Event()
        names = ", ".join(service.name for service in window.services.all())
        event.add("uid", f"window-{window.pk}@{host}")
        event.add("dtstamp", window.cancelled_at or min(at, window.starts_at))
        event.add("dtstart", window.starts_at)
        event.add("dtend", window.ends_at)
        event.add("summary", mark_hidden(f"{names}: {window.title}" if names else window.title))
        event.add(
            "description", mark_hidden(f"{window.get_effect_display()}. {window.text}".strip())
        )
        event.add("sequence", 1 if window.cancelled_at else 0)
        event.add("status", "CANCELLED" if window.cancelled_at else "CONFIRMED")
        calendar.add_component(event)
    return bytes(calendar.to_ical())


def atom_feed(at: datetime, page: str) -> str:
    """Return incidents with their updates and ends, and windows, as an Atom feed, newest first."""
    windows = DowntimeWindow.objects.filter(ends_at__gt=at - PAST).prefetch_related("services")
    entries = [_entry_of_incident(incident) for incident in _recent_incidents(at)]
    entries += [_entry_of_window(window) for window in windows]
    entries.sort(key=lambda entry: entry.updated_at, reverse=True)

    feed = Atom1Feed(
        title="Services", link=page, description="", feed_url=f"{page}feed.atom", feed_guid=page
    )
    for entry in entries[:MOST_ENTRIES]:
        feed.add_item(
            title=mark_hidden(entry.title),
            link=page,
            description=mark_hidden(entry.text),
            unique_id=f"{page}#{entry.key}",
            pubdate=entry.published_at,
            updateddate=entry.updated_at,
        )
    return feed.writeString("utf-8")


def _recent_incidents(at: datetime) -> QuerySet[Incident]:
    recent = Incident.objects.filter(Q(ended_at=None) | Q(ended_at__gt=at - PAST), merged_into=None)
    return recent.select_related("service").prefetch_related("notes")


@dataclass(frozen=True)
class _Entry:
    """An entry of the Atom feed; `key` identifies it within the feed."""

    key: str
    title: str
    text: str
    published_at: datetime
    updated_at: datetime


def _entry_of_incident(incident: Incident) -> _Entry:
    state = incident.get_state_display().lower()
    lines = []
    updated_at = incident.started_at
    for note in incident.notes.all():
        if note.kind == NoteKind.UPDATE:
            lines.append(f"{note.at:%Y-%m-%d %H:%M} UTC: {note.text}")
            updated_at = max(updated_at, note.at)
    if incident.ended_at:
        state = f"was {state}"
        lines.append(f"Resolved {incident.ended_at:%Y-%m-%d %H:%M} UTC.")
        updated_at = max(updated_at, incident.ended_at)
    return _Entry(
        key=f"incident-{incident.pk}",
        title=f"{incident.service.name} {state}: {incident.title}",
        text="\n".join(lines),
        published_at=incident.started_at,
        updated_at=updated_at,
    )


def _entry_of_window(window: DowntimeWindow) -> _Entry:
    names = ", ".join(service.name for service in window.services.all())
    kind = "Cancelled" if window.cancelled_at else "Maintenance"
    period = f"{window.starts_at:%Y-%m-%d %H:%M} to {window.ends_at:%Y-%m-%d %H:%M} UTC"
    return _Entry(
        key=f"window-{window.pk}",
        title=f"{kind}: {names}: {window.title}",
        text=f"{period}. {window.text}".strip(),
        published_at=window.starts_at,
        updated_at=window.cancelled_at or window.starts_at,
    )


def summarise_for_badge(at: datetime) -> tuple[State, str]:
    """Return the worst state, and how many services have it, for a badge."""
    rows = list_monitored(at)
    state = worst([row.own for row in rows])
    if state == State.UP:
        return state, "all up"
    count = sum(row.own == state for row in rows)
    return state, f"{count} {state.label.lower()}"
