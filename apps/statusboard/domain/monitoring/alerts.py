"""Open and close incidents from a source's alerts.

An episode is identified by source, key and start, and ends once.
"""

from collections.abc import Collection
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from django.db import transaction
from django.db.models import Q, QuerySet

from apps.core.domain.events import publish
from apps.statusboard.domain.incidents.incidents import record_state, set_latest_state
from apps.statusboard.enums import Resolution, State
from apps.statusboard.feeds.base import Alert, Status
from apps.statusboard.models import EarlyEnd, Incident, MonitoringSource, Service

#: How long the end of an alert is kept for a start that arrives later.
_EARLY = timedelta(days=1)
#: An alert that fires again within this time after its end is flapping.
FLAP = timedelta(minutes=15)


@dataclass(frozen=True)
class _Report:
    """An alert as received: its source, service and state."""

    source: MonitoringSource
    alert: Alert
    service: Service
    state: State
    at: datetime

    @property
    def started_at(self) -> datetime:
        return self.alert.started_at or self.at


@transaction.atomic
def record_episode(
    *, source: MonitoringSource, alert: Alert, service: Service, state: State, at: datetime
) -> set[int]:
    """Open, renew or close the incident of an alert received at `at`.

    Return the primary keys of the services that changed. A closed episode stays closed, however
    often its alert is repeated. A new start is a new episode and supersedes a previous one that is
    open. The source's row must be locked.
    """
    incidents = Incident.objects.select_for_update(of=("self",)).filter(
        source=source, dedup_key=alert.dedup_key
    )
    if alert.started_at is None:
        episode_start = _episode_at(incidents, alert, at)
        if episode_start is None:
            record_early_end(source=source, alert=alert, at=at)
            return set()
        alert = replace(alert, started_at=episode_start)
    report = _Report(source, alert, service, state, at)
    incident = incidents.filter(episode_started_at=report.started_at).first()
    if incident is None:
        return {service.pk} | _open(report)
    touched = {service.pk, incident.service_id}
    return touched if _update(incident, report) else set()


def _episode_at(incidents: QuerySet[Incident], alert: Alert, at: datetime) -> datetime | None:
    """Return the start of the episode that an alert without a start belongs to.

    That is the latest episode that was open when the alert was reported, else a new one. Return
    None for a resolved alert without such an episode.
    """
    reported_at = alert.reported_at or alert.ended_at or at
    going_on = Q(ended_at=None) | Q(ended_at__gte=reported_at)
    open_then = incidents.filter(going_on, episode_started_at__lte=reported_at)
    latest = open_then.order_by("-episode_started_at").first()
    if latest is not None:
        return latest.episode_started_at
    return None if alert.status is Status.RESOLVED else reported_at


def record_early_end(*, source: MonitoringSource, alert: Alert, at: datetime) -> None:
    """Keep the end of an alert that is not open, for a start that arrives later."""
    ended_at = alert.ended_at or alert.reported_at or at
    EarlyEnd.objects.bulk_create(
        [EarlyEnd(source=source, dedup_key=alert.dedup_key, ended_at=ended_at)],
        update_conflicts=True,
        unique_fields=["source", "dedup_key"],
        update_fields=["ended_at"],
    )


def _open(report: _Report) -> set[int]:
    """Open the incident of a new episode, which may have ended already.

    Return the primary keys of the services whose earlier episodes it supersedes.
    """
    alert = report.alert
    source = report.source
    started_at = report.started_at
    incident = Incident(
        service=report.service,
        source=source,
        dedup_key=alert.dedup_key,
        episode_started_at=started_at,
        started_at=started_at,
        state=report.state,
        **_texts(alert),
        lease_expires_at=report.at + timedelta(seconds=source.lease_seconds),
        opened_by=source.slug,
        flap_count=_flaps(report),
    )
    if alert.status is Status.RESOLVED:
        _end(incident, _end_of(report), Resolution.RESOLVED, source.slug)
    elif early := _early_end(report):
        _end(incident, early.ended_at, Resolution.RESOLVED, source.slug)
        early.delete()
    elif following := _following_episode(report):
        _end(incident, following.episode_started_at, Resolution.SUPERSEDED, source.slug)
    incident.save()
    record_state(incident=incident, state=report.state, at=report.at)
    data = {"service": report.service.slug, "source": source.slug}
    publish(
        kind="incident.opened",
        target=incident,
        by=str(source),
        at=report.at,
        new=incident.state,
        data=data,
    )
    if not incident.is_open:
        _publish_closed(incident, report.source, report.at)
    return _supersede(report)


def _early_end(report: _Report) -> EarlyEnd | None:
    ends = EarlyEnd.objects.filter(source=report.source, dedup_key=report.alert.dedup_key)
    return ends.filter(ended_at__gte=report.started_at).first()


def _following_episode(report: _Report) -> Incident | None:
    """Return the next episode of the same alert, if its start arrived before this one's."""
    episodes = Incident.objects.filter(source=report.source, dedup_key=report.alert.dedup_key)
    later = episodes.filter(episode_started_at__gt=report.started_at)
    return later.order_by("episode_started_at").first()


def _supersede(report: _Report) -> set[int]:
    """Close earlier, unresolved episodes of the same alert: an alert fires only once at a time."""
    start = report.started_at
    earlier = Incident.objects.select_related("service").filter(
        Q(ended_at=None) | Q(resolution=Resolution.SUPERSEDED, ended_at__gt=start),
        source=report.source,
        dedup_key=report.alert.dedup_key,
        episode_started_at__lt=start,
    )
    touched = set()
    for incident in earlier:
        was_open = incident.is_open
        _end(incident, max(start, incident.started_at), Resolution.SUPERSEDED, report.source.slug)
        set_latest_state(incident)
        incident.save()
        touched.add(incident.service_id)
        if was_open:
            _publish_closed(incident, report.source, report.at)
    return touched


def _update(incident: Incident, report: _Report) -> bool:
    """Apply another report of a known episode; return whether anything changed."""
    before = _content(incident)
    was_open = incident.is_open
    was_stale = incident.stale_at is not None
    state_before = str(report.state)
    incident.service = report.service
    if incident.resolution != Resolution.MANUAL:
        if report.alert.status is Status.RESOLVED:
            end = _end_of(report)
            end = max(end, incident.started_at)
            if incident.resolution == Resolution.RESOLVED and incident.ended_at:
                end = max(end, incident.ended_at)
            _end(incident, end, Resolution.RESOLVED, report.source.slug)
        elif (
            incident.resolution == Resolution.MISSING
            and incident.ended_at
            and report.at > incident.ended_at
        ):
            _reopen(incident, report)
        elif incident.resolution not in (Resolution.RESOLVED, Resolution.MISSING):
            _renew_lease(incident, report)
        state_before = record_state(incident=incident, state=report.state, at=report.at)
    if _content(incident) == before and state_before == report.state:
        return False
    incident.save()
    if incident.is_open and state_before != report.state:
        publish(
            kind="incident.changed",
            target=incident,
            by=str(report.source),
            at=report.at,
            old=state_before,
            new=report.state,
        )
    if was_open and not incident.is_open:
        _publish_closed(incident, report.source, report.at)
    elif was_stale and incident.is_open and incident.stale_at is None:
        publish(
            kind="incident.renewed",
            target=incident,
            by=str(report.source),
            at=report.at,
            new=incident.state,
        )
    return True


def _content(incident: Incident) -> tuple[object, ...]:
    """Return the values that a report may change."""
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


def _reopen(incident: Incident, report: _Report) -> None:
    """Reopen an incident whose alert was only missing.

    Alertmanager forgets all alerts when it restarts.
    """
    incident.ended_at = None
    incident.resolution = ""
    incident.closed_by = ""
    _renew_lease(incident, report)
    publish(
        kind="incident.reopened",
        target=incident,
        by=str(report.source),
        at=report.at,
        new=incident.state,
    )


@transaction.atomic
def close_missing(*, source: MonitoringSource, reported: Collection[str], at: datetime) -> set[int]:
    """Close open incidents that are missing in the complete list that a source sent at `at`.

    Return the primary keys of their services. Incidents reported after `at` stay open. The source's
    row must be locked.
    """
    lease = at + timedelta(seconds=source.lease_seconds)
    incidents = Incident.objects.select_for_update(of=("self",)).select_related("service")
    # A later lease was renewed by a report after `at`.
    reported_before = incidents.filter(source=source, ended_at=None, lease_expires_at__lte=lease)
    touched = set()
    for incident in reported_before.exclude(dedup_key__in=reported):
        _end(incident, max(at, incident.started_at), Resolution.MISSING, source.slug)
        incident.save()
        touched.add(incident.service_id)
        _publish_closed(incident, source, at)
    return touched


def _renew_lease(incident: Incident, report: _Report) -> None:
    """Renew the lease of a repeated alert from the time of its report."""
    lease = report.at + timedelta(seconds=report.source.lease_seconds)
    if incident.lease_expires_at is None or lease > incident.lease_expires_at:
        incident.lease_expires_at = lease
        for name, value in _texts(report.alert).items():
            setattr(incident, name, value)
    if incident.ended_at is not None:
        _end(incident, incident.ended_at, Resolution.SUPERSEDED, report.source.slug)
    elif lease > (incident.stale_at or lease):
        incident.stale_at = None


def _end(incident: Incident, ended_at: datetime, resolution: Resolution, by: str) -> None:
    incident.ended_at = ended_at
    incident.resolution = resolution
    incident.closed_by = by
    incident.stale_at = None
    lease = incident.lease_expires_at
    if resolution is Resolution.SUPERSEDED and lease is not None and lease < ended_at:
        incident.stale_at = lease


def _end_of(report: _Report) -> datetime:
    return max(report.alert.ended_at or report.at, report.started_at)


def _flaps(report: _Report) -> int:
    """Return the flap count of an episode.

    That is the count of the previous episode plus one if it ended within `FLAP`, else 0.
    """
    start = report.started_at
    before = Incident.objects.filter(
        source=report.source,
        dedup_key=report.alert.dedup_key,
        ended_at__lte=start,
        ended_at__gt=start - FLAP,
    ).order_by("-episode_started_at")
    last = before.filter(episode_started_at__lt=start).first()
    return last.flap_count + 1 if last else 0


def _texts(alert: Alert) -> dict[str, str]:
    return {
        "title": (alert.title or alert.dedup_key)[:200],
        "text": alert.text[:10_000],
        "url": alert.url if len(alert.url) <= 2000 else "",
    }


def _publish_closed(incident: Incident, source: MonitoringSource, at: datetime) -> None:
    ended_at = incident.ended_at.isoformat() if incident.ended_at else ""
    data = {"service": incident.service.slug, "ended_at": ended_at}
    publish(
        kind="incident.closed",
        target=incident,
        by=str(source),
        at=at,
        old=incident.state,
        data=data,
    )


@transaction.atomic
def mark_stale_incidents(*, at: datetime) -> int:
    """Mark open incidents with an expired lease as stale; return their number.

    Also deletes ends whose start never arrived.
    """
    EarlyEnd.objects.filter(ended_at__lt=at - _EARLY).delete()
    expired = Incident.objects.select_for_update(skip_locked=True, of=("self",)).select_related(
        "source"
    )
    rows = list(expired.filter(ended_at=None, stale_at=None, lease_expires_at__lte=at))
    for incident in rows:
        incident.stale_at = incident.lease_expires_at
        incident.save(update_fields=["stale_at"])
        publish(
            kind="incident.stale",
            target=incident,
            by=str(incident.source or ""),
            at=at,
            old=incident.state,
            new=State.UNKNOWN,
        )
    return len(rows)
