"""One alert of a source as an incident: an episode is known by source, key and start, and ends once."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db import transaction
from django.db.models import Q

from apps.core.domain.events import publish
from apps.statusboard.enums import Resolution, State
from apps.statusboard.feeds.base import Alert, Status
from apps.statusboard.models import Incident, MonitoringSource, Service

#: An alert that comes back sooner than this after its end is flapping.
FLAP = timedelta(minutes=15)


@dataclass(frozen=True)
class _Said:
    """One alert, by whom it was said, and of which service."""

    source: MonitoringSource
    alert: Alert
    service: Service
    state: State
    at: datetime


@transaction.atomic
def record_episode(*, source: MonitoringSource, alert: Alert, service: Service, state: State, at: datetime) -> set[int]:
    """Open, prolong or close the incident of an alert received at `at`; return the ids of services it changed.

    An episode that is closed stays closed, however often its old alert is repeated; a new start is a new episode, and
    ends the one before it if nobody said when that ended. The source's row must be locked.
    """
    said = _Said(source, alert, service, state, at)
    rows = Incident.objects.select_for_update(of=("self",)).filter(source=source, dedup_key=alert.dedup_key)
    incident = rows.filter(started_at=alert.started_at).first()
    if incident is None:
        return {service.pk} | _open(said)
    touched = {service.pk, incident.service_id}
    return touched if _follow(incident, said) else set()


def _open(said: _Said) -> set[int]:
    alert, source = said.alert, said.source
    episodes = Incident.objects.filter(source=source, dedup_key=alert.dedup_key)
    incident = Incident(
        service=said.service,
        source=source,
        dedup_key=alert.dedup_key,
        started_at=alert.started_at,
        state=said.state,
        **_words(alert),
        lease_expires_at=said.at + timedelta(seconds=source.lease_seconds),
        opened_by=source.slug,
        flap_count=_flaps(said),
    )
    if alert.status is Status.RESOLVED:
        _end(incident, _end_of(said), Resolution.RESOLVED, source.slug)
    elif following := episodes.filter(started_at__gt=alert.started_at).order_by("started_at").first():
        _end(incident, following.started_at, Resolution.SUPERSEDED, source.slug)
    incident.save()
    data = {"service": said.service.slug, "source": source.slug}
    publish(kind="incident.opened", target=incident, by=str(source), at=said.at, new=incident.state, data=data)
    if not incident.is_open:
        _publish_closed(incident, said)
    return _supersede(said)


def _supersede(said: _Said) -> set[int]:
    """End earlier episodes of the same alert whose end nobody told: one alert fires once at a time."""
    start = said.alert.started_at
    earlier = Incident.objects.select_related("service").filter(
        Q(ended_at=None) | Q(resolution=Resolution.SUPERSEDED, ended_at__gt=start),
        source=said.source,
        dedup_key=said.alert.dedup_key,
        started_at__lt=start,
    )
    touched = set()
    for row in earlier:
        was_open = row.is_open
        _end(row, start, Resolution.SUPERSEDED, said.source.slug)
        row.save()
        touched.add(row.service_id)
        if was_open:
            _publish_closed(row, said)
    return touched


def _follow(incident: Incident, said: _Said) -> bool:
    """Apply one more word on a known episode; return whether anything changed."""
    before = _content(incident)
    was_open, was_stale = incident.is_open, incident.stale_at is not None
    incident.service = said.service
    if incident.resolution != Resolution.MANUAL:
        incident.state = said.state
        if said.alert.status is Status.RESOLVED:
            end = _end_of(said)
            if incident.resolution == Resolution.RESOLVED and incident.ended_at:
                end = max(end, incident.ended_at)
            _end(incident, end, Resolution.RESOLVED, said.source.slug)
        elif incident.resolution != Resolution.RESOLVED:
            _prolong(incident, said)
    if _content(incident) == before:
        return False
    incident.save()
    if was_open and not incident.is_open:
        _publish_closed(incident, said)
    elif was_stale and incident.is_open and incident.stale_at is None:
        publish(kind="incident.revived", target=incident, by=str(said.source), at=said.at, new=incident.state)
    return True


def _content(incident: Incident) -> tuple[object, ...]:
    return (
        incident.service_id,
        incident.state,
        incident.ended_at,
        incident.resolution,
        incident.stale_at,
        incident.lease_expires_at,
        incident.title,
        incident.text,
        incident.url,
    )


def _prolong(incident: Incident, said: _Said) -> None:
    """A word that it still goes on: its lease runs anew, from when that was said."""
    lease = said.at + timedelta(seconds=said.source.lease_seconds)
    if incident.lease_expires_at is None or lease > incident.lease_expires_at:
        incident.lease_expires_at = lease
        for name, value in _words(said.alert).items():
            setattr(incident, name, value)
    if incident.ended_at is not None:
        _end(incident, incident.ended_at, Resolution.SUPERSEDED, said.source.slug)
    elif lease > (incident.stale_at or lease):
        incident.stale_at = None


def _end(incident: Incident, ended_at: datetime, resolution: Resolution, by: str) -> None:
    incident.ended_at, incident.resolution, incident.closed_by = ended_at, resolution, by
    lease = incident.lease_expires_at
    untold = resolution is Resolution.SUPERSEDED and lease is not None and lease < ended_at
    incident.stale_at = lease if untold else None


def _end_of(said: _Said) -> datetime:
    return max(said.alert.ended_at or said.at, said.alert.started_at)


def _flaps(said: _Said) -> int:
    """Count on from the episode before, if it ended only just before."""
    start = said.alert.started_at
    before = Incident.objects.filter(
        source=said.source, dedup_key=said.alert.dedup_key, ended_at__lte=start, ended_at__gt=start - FLAP
    ).order_by("-started_at")
    last = before.filter(started_at__lt=start).first()
    return last.flap_count + 1 if last else 0


def _words(alert: Alert) -> dict[str, str]:
    return {
        "title": (alert.title or alert.dedup_key)[:200],
        "text": alert.text[:10_000],
        "url": alert.url if len(alert.url) <= 2000 else "",
    }


def _publish_closed(incident: Incident, said: _Said) -> None:
    ended_at = incident.ended_at.isoformat() if incident.ended_at else ""
    data = {"service": incident.service.slug, "ended_at": ended_at}
    publish(kind="incident.closed", target=incident, by=str(said.source), at=said.at, old=incident.state, data=data)


@transaction.atomic
def mark_stale_incidents(*, at: datetime) -> int:
    """Mark open incidents of which nothing was heard for the length of their lease; return how many."""
    expired = Incident.objects.select_for_update(skip_locked=True, of=("self",)).select_related("source")
    rows = list(expired.filter(ended_at=None, stale_at=None, lease_expires_at__lte=at))
    for row in rows:
        row.stale_at = row.lease_expires_at
        row.save(update_fields=["stale_at"])
        publish(kind="incident.lapsed", target=row, by=str(row.source or ""), at=at, old=row.state, new=State.UNKNOWN)
    return len(rows)
