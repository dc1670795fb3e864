"""Incidents that users manage: report, update, close and list them."""

from collections.abc import Iterable
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from uuid import uuid4

from django.db import transaction
from django.db.models import QuerySet

from apps.accounts.models import User
from apps.core.domain.events import publish
from apps.core.errors import InvalidFields, StaleState
from apps.statusboard.domain.states.history import rebuild
from apps.statusboard.enums import Resolution, State
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
    """Report a service as down or degraded, since `started_at` or now.

    Raises `NotAllowed`, `InvalidFields`.
    """
    require_board_role(by, "manage incidents")
    if started_at is not None and started_at > at:
        raise InvalidFields(
            {"started_at": ["Start is in the future. Schedule maintenance instead."]}
        )
    return _open(
        service=service,
        state=state,
        title=title,
        by=by.username,
        at=at,
        started_at=started_at or at,
        text=text,
        url=url,
    )


@transaction.atomic
def open_incident_as_portal(
    *, service: Service, state: State, title: str, by: str, at: datetime, text: str
) -> Incident:
    """Report a service as down or degraded from now on, for `by`, a component of the portal."""
    return _open(
        service=service, state=state, title=title, by=by, at=at, started_at=at, text=text, url=""
    )


def _open(
    *,
    service: Service,
    state: State,
    title: str,
    by: str,
    at: datetime,
    started_at: datetime,
    text: str,
    url: str,
) -> Incident:
    incident = Incident.objects.create(
        service=service,
        dedup_key=f"hand:{uuid4().hex}",
        episode_started_at=started_at,
        started_at=started_at,
        state=state,
        title=title,
        text=text,
        url=url,
        opened_by=by,
    )
    record_state(incident=incident, state=state, at=started_at)
    publish(
        kind="incident.opened",
        target=incident,
        by=by,
        at=at,
        new=state,
        data={"service": service.slug, "source": ""},
    )
    rebuild(service_ids=[service.pk], since=started_at)
    return incident


def record_state(*, incident: Incident, state: State, at: datetime) -> str:
    """Record a state as of `at`, and set the latest state without saving.

    Return the state that was known for that moment before.
    """
    changes = incident.changes
    before = changes.filter(at__lte=at).last() or changes.first()
    changes.update_or_create(at=at, defaults={"state": state})
    set_latest_state(incident)
    return before.state if before else state


def set_latest_state(incident: Incident) -> None:
    """Set the state to the state of the last change before the end, without saving."""
    changes = incident.changes.all()
    if incident.ended_at is None:
        within = changes
    else:
        within = changes.filter(at__lt=incident.ended_at)
    if last := within.last() or changes.first():
        incident.state = last.state


@transaction.atomic
def update_incident(
    *,
    incident: Incident,
    state: State,
    title: str,
    by: User,
    at: datetime,
    reason: str,
    since: datetime | None = None,
    text: str = "",
    url: str = "",
) -> Incident:
    """Update an open incident that has had this state since `since`, or since now.

    The states before that are kept. Raises `NotAllowed`, `StaleState` if it is closed,
    `InvalidFields`.
    """
    require_board_role(by, "manage incidents")
    locked = open_or_refuse(incident)
    if since is not None and not locked.started_at <= since <= at:
        raise InvalidFields({"since": ["Choose a time between the start of the incident and now."]})
    old = record_state(incident=locked, state=state, at=since or at)
    locked.title = title
    locked.text = text
    locked.url = url
    locked.save(update_fields=["state", "title", "text", "url"])
    kind = "incident.updated" if old == state else "incident.changed"
    publish(kind=kind, target=locked, by=by, at=at, old=old, new=state, reason=reason)
    rebuild(service_ids=[locked.service_id], since=since or at)
    return locked


@transaction.atomic
def close_incident(
    *, incident: Incident, by: User, at: datetime, reason: str, ended_at: datetime | None = None
) -> Incident:
    """Close an incident as of `ended_at` or now; repeated alerts do not reopen it.

    Raises `NotAllowed`, `StaleState` if it is already closed, `InvalidFields`.
    """
    require_board_role(by, "manage incidents")
    locked = open_or_refuse(incident)
    end = ended_at or at
    if end > at:
        raise InvalidFields({"ended_at": ["End is in the future."]})
    if end < locked.started_at:
        raise InvalidFields({"ended_at": ["End is before the start of the incident."]})
    if not reason.strip():
        raise InvalidFields({"reason": ["Enter how you know that the service works again."]})
    locked.stale_at = None
    if locked.lease_expires_at and locked.lease_expires_at < end:
        locked.stale_at = locked.lease_expires_at
    locked.ended_at = end
    locked.closed_by = by.username
    locked.resolution = Resolution.MANUAL
    set_latest_state(locked)
    locked.save(update_fields=["state", "ended_at", "closed_by", "resolution", "stale_at"])
    publish(
        kind="incident.closed",
        target=locked,
        by=by,
        at=at,
        old=locked.state,
        reason=reason,
        data={"service": locked.service.slug, "ended_at": end.isoformat()},
    )
    rebuild(service_ids=[locked.service_id], since=locked.started_at)
    return locked


def open_or_refuse(incident: Incident) -> Incident:
    """Return the locked row of an open incident. Raises `StaleState` if it is closed."""
    locked = (
        Incident.objects.select_for_update(of=("self",))
        .select_related("service")
        .get(pk=incident.pk)
    )
    if not locked.is_open:
        raise StaleState(f"“{locked}” was already closed by {locked.closed_by}.")
    return locked


def incidents_of(
    service: Service, day: date | None = None, zone: tzinfo = UTC
) -> QuerySet[Incident]:
    """Return a service's incidents, optionally of one day in `zone`, newest first."""
    incidents = Incident.objects.filter(service=service, merged_into=None).select_related(
        "source", "service"
    )
    if day is not None:
        start = datetime.combine(day, time(), zone)
        incidents = incidents.overlapping(
            start, datetime.combine(day + timedelta(days=1), time(), zone)
        )
    return incidents.order_by("-started_at", "-pk")


def incidents_since(since: datetime, at: datetime) -> QuerySet[Incident]:
    """Return the incidents of all services that lasted at any time since `since`, newest first."""
    incidents = Incident.objects.filter(merged_into=None).overlapping(since, at)
    return incidents.select_related("source", "service").order_by("-started_at", "-pk")


def open_incidents(services: Iterable[Service] | None = None) -> QuerySet[Incident]:
    """Return open incidents, optionally of some services, newest first."""
    incidents = Incident.objects.filter(ended_at=None, merged_into=None).select_related(
        "source", "service"
    )
    if services is None:
        return incidents
    return incidents.filter(service__in=services)
