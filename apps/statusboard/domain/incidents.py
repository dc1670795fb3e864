"""Incidents managed by users: report, update, close and list them."""

from collections.abc import Iterable
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from uuid import uuid4

from django.db import transaction
from django.db.models import QuerySet

from apps.accounts.models import User
from apps.core.domain.events import publish
from apps.core.errors import InvalidFields, StaleState
from apps.statusboard.domain.history import rebuild
from apps.statusboard.enums import INCIDENT_STATES, Resolution, State
from apps.statusboard.models import Incident, Service
from apps.statusboard.permissions import require_board_role


@transaction.atomic
def open_incident(
    *,
    service: Service,
    state: State,
    title: str,
    by: User,
    at: datetime,
    started_at: datetime | None = None,
    text: str = "",
    url: str = "",
) -> Incident:
    """Report a service as down or degraded since `started_at`, or now. Raises `NotAllowed`, `InvalidFields`."""
    require_board_role(by, "manage incidents")
    if started_at is not None and started_at > at:
        raise InvalidFields({"started_at": ["Start is in the future. Schedule maintenance instead."]})
    incident = Incident.objects.create(
        service=service,
        dedup_key=f"hand:{uuid4().hex}",
        started_at=started_at or at,
        state=state,
        title=title,
        text=text,
        url=url,
        opened_by=by.username,
    )
    publish(
        kind="incident.opened", target=incident, by=by, at=at, new=state, data={"service": service.slug, "source": ""}
    )
    rebuild(service_ids=[service.pk], since=incident.started_at)
    return incident


@transaction.atomic
def update_incident(
    *, incident: Incident, state: State, title: str, by: User, at: datetime, reason: str, text: str = "", url: str = ""
) -> Incident:
    """Update an open incident. Raises `NotAllowed`, and `StaleState` if it is closed."""
    require_board_role(by, "manage incidents")
    row = _open(incident)
    old, row.state, row.title, row.text, row.url = row.state, state, title, text, url
    row.save(update_fields=["state", "title", "text", "url"])
    publish(kind="incident.updated", target=row, by=by, at=at, old=old, new=state, reason=reason)
    rebuild(service_ids=[row.service_id], since=row.started_at)
    return row


@transaction.atomic
def close_incident(
    *, incident: Incident, by: User, at: datetime, reason: str, ended_at: datetime | None = None
) -> Incident:
    """Close an incident as of `ended_at`, or now; repeated alerts do not reopen it.

    Raises `NotAllowed`, `StaleState` if it is already closed, `InvalidFields`.
    """
    require_board_role(by, "manage incidents")
    row = _open(incident)
    end = ended_at or at
    if end > at:
        raise InvalidFields({"ended_at": ["End is in the future."]})
    if end < row.started_at:
        raise InvalidFields({"ended_at": ["End is before the start of the incident."]})
    if not reason.strip():
        raise InvalidFields({"reason": ["Enter how you know that the service works again."]})
    row.stale_at = row.lease_expires_at if row.lease_expires_at and row.lease_expires_at < end else None
    row.ended_at, row.closed_by, row.resolution = end, by.username, Resolution.MANUAL
    row.save(update_fields=["ended_at", "closed_by", "resolution", "stale_at"])
    publish(
        kind="incident.closed",
        target=row,
        by=by,
        at=at,
        old=row.state,
        reason=reason,
        data={"service": row.service.slug, "ended_at": end.isoformat()},
    )
    rebuild(service_ids=[row.service_id], since=row.started_at)
    return row


def _open(incident: Incident) -> Incident:
    row = Incident.objects.select_for_update(of=("self",)).select_related("service").get(pk=incident.pk)
    if not row.is_open:
        raise StaleState(f"“{row}” was already closed by {row.closed_by}.")
    return row


def incidents_of(service: Service, day: date | None = None, zone: tzinfo = UTC) -> QuerySet[Incident]:
    """Return a service's incidents, optionally of one day in `zone`, newest first."""
    incidents = Incident.objects.filter(service=service).select_related("source", "service")
    if day is not None:
        start = datetime.combine(day, time(), zone)
        incidents = incidents.overlapping(start, datetime.combine(day + timedelta(days=1), time(), zone))
    return incidents.order_by("-started_at", "-pk")


def open_incidents(services: Iterable[Service] | None = None) -> QuerySet[Incident]:
    """Return open incidents, newest first."""
    incidents = Incident.objects.filter(ended_at=None, state__in=INCIDENT_STATES).select_related("source", "service")
    return incidents if services is None else incidents.filter(service__in=services)
