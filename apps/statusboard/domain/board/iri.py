"""The board in the DOE Integrated Research Infrastructure (IRI) API: resources, incidents, events.

The fields follow its reference, doe-iri/iri-facility-api-python, app/routers/status/models.py
(2026). IRI has neither maintenance nor stale states: a service in maintenance is `down` there, with
a planned incident.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from django.db.models import Q

from apps.statusboard.domain.board.exports import list_monitored
from apps.statusboard.enums import NoteKind, State, WindowEffect
from apps.statusboard.models import DowntimeWindow, Incident

#: How long resolved incidents and past windows are listed.
PAST = timedelta(days=90)
RESOURCES = "resources"
INCIDENTS = "incidents"
EVENTS = "events"
_STATUS = {State.MAINTENANCE: "down"}
_EFFECT = {WindowEffect.DOWN: "down", WindowEffect.DEGRADED: "degraded", WindowEffect.AT_RISK: "up"}


def list_resources(at: datetime, base: str) -> list[dict[str, Any]]:
    """Return the monitored services. Runs a constant number of queries."""
    rows = list_monitored(at)
    names = {row.service.pk: row.service.name for row in rows}
    entries = []
    for row in rows:
        entries.append(
            {
                **_object(
                    base,
                    RESOURCES,
                    row.service.slug,
                    row.service.name,
                    row.service.kind,
                    row.since or at,
                ),
                "group": names.get(row.service.parent_id or 0),
                "current_status": _STATUS.get(row.own, str(row.own)),
                "resource_type": "urn:doe-iri:service:generic",
            }
        )
    return entries


def list_incidents(at: datetime, base: str) -> list[dict[str, Any]]:
    """Return incidents and maintenance windows, newest start first.

    Runs a constant number of queries.
    """
    entries = [_incident(incident, base) for incident in _recent(at)]
    windows = DowntimeWindow.objects.filter(ends_at__gt=at - PAST).prefetch_related("services")
    entries += [_planned(window, at, base) for window in windows]
    return sorted(entries, key=lambda entry: (entry["start"], entry["id"]), reverse=True)


def list_events(at: datetime, base: str) -> list[dict[str, Any]]:
    """Return the changes of incidents, newest first. Runs a constant number of queries."""
    changes: list[dict[str, Any]] = []
    for incident in _recent(at):
        changes.extend(_events(incident, base))
    return sorted(changes, key=lambda event: (event["occurred_at"], event["id"]), reverse=True)


def _recent(at: datetime) -> Iterable[Incident]:
    incidents = Incident.objects.filter(
        Q(ended_at=None) | Q(ended_at__gt=at - PAST), merged_into=None
    )
    return (
        incidents.select_related("service")
        .prefetch_related("changes", "notes")
        .order_by("-started_at", "-pk")
    )


def _object(
    base: str, kind: str, key: str, name: str, description: str, modified: datetime
) -> dict[str, Any]:
    return {
        "id": key,
        "self_uri": f"{base}/{kind}/{key}",
        "name": name,
        "description": description or None,
        "last_modified": modified.isoformat(),
    }


def _incident(incident: Incident, base: str) -> dict[str, Any]:
    phases = _phases(incident)
    # The incident's own text comes from monitoring and may contain host names and addresses. Only
    # the updates are public.
    updates = []
    for note in incident.notes.all():
        if note.kind == NoteKind.UPDATE:
            updates.append(note.text)
    text = "\n".join(updates)
    return {
        **_object(base, INCIDENTS, f"incident-{incident.pk}", incident.title, text, phases[-1][0]),
        "status": incident.state,
        "type": "unplanned",
        "resolution": "unresolved" if incident.is_open else "completed",
        "start": incident.started_at.isoformat(),
        "end": incident.ended_at.isoformat() if incident.ended_at else None,
        "resource_uris": [f"{base}/{RESOURCES}/{incident.service.slug}"],
        "event_uris": [
            f"{base}/{EVENTS}/{incident.pk}-{number}" for number in range(1, len(phases) + 1)
        ],
    }


def _planned(window: DowntimeWindow, at: datetime, base: str) -> dict[str, Any]:
    if window.ends_at <= at:
        resolution = "completed"
    elif window.starts_at <= at:
        resolution = "unresolved"
    else:
        resolution = "pending"
    return {
        **_object(
            base,
            INCIDENTS,
            f"window-{window.pk}",
            window.title,
            window.text,
            min(at, window.cancelled_at or window.starts_at),
        ),
        "status": _EFFECT[WindowEffect(window.effect)],
        "type": "planned",
        "resolution": "cancelled" if window.cancelled_at else resolution,
        "start": window.starts_at.isoformat(),
        "end": window.ends_at.isoformat(),
        "resource_uris": [
            f"{base}/{RESOURCES}/{service.slug}" for service in window.services.all()
        ],
        "event_uris": [],
    }


def _phases(incident: Incident) -> Sequence[tuple[datetime, str]]:
    """Return the time and status of each phase of an incident, and of its end.

    The first phase begins at the start of the incident.
    """
    changes = [(change.at, change.state) for change in incident.changes.all()] or [
        (incident.started_at, incident.state)
    ]
    within = []
    for at, state in changes:
        if incident.ended_at is None or at < incident.ended_at:
            within.append((max(incident.started_at, at), state))
    within = within or [(incident.started_at, incident.state)]
    return [*within, (incident.ended_at, "up")] if incident.ended_at else within


def _events(incident: Incident, base: str) -> Iterable[dict[str, Any]]:
    for number, (occurred_at, status) in enumerate(_phases(incident), start=1):
        yield {
            **_object(
                base,
                EVENTS,
                f"{incident.pk}-{number}",
                f"{incident.service.name} {status}",
                "",
                occurred_at,
            ),
            "occurred_at": occurred_at.isoformat(),
            "status": status,
            "resource_uri": f"{base}/{RESOURCES}/{incident.service.slug}",
            "incident_uri": f"{base}/{INCIDENTS}/incident-{incident.pk}",
        }


#: Functions that list the objects of a kind, called with the time and the base of their URIs.
KINDS: Mapping[str, Callable[[datetime, str], list[dict[str, Any]]]] = {
    RESOURCES: list_resources,
    INCIDENTS: list_incidents,
    EVENTS: list_events,
}
