"""Rebuild the state intervals of services from incidents, maintenance windows and monitoring."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from datetime import datetime

from django.db import transaction
from django.db.models import Q

from apps.statusboard.domain.states.timeline import (
    BEGINNING,
    Claim,
    Span,
    build,
    cut_into_phases,
    subtract,
)
from apps.statusboard.enums import Cause, Monitoring, State, WindowEffect
from apps.statusboard.models import (
    DowntimeWindow,
    Incident,
    MonitoringGap,
    MonitoringSource,
    Service,
    StateInterval,
)

#: The cause of an unknown state where no other claim exists.
_DEFAULT_CAUSE = {
    Monitoring.FEED: Cause.NO_DATA,
    Monitoring.MANUAL: Cause.NOT_MONITORED,
    Monitoring.NONE: Cause.NOT_MONITORED,
}


@transaction.atomic
def rebuild(*, service_ids: Collection[int], since: datetime = BEGINNING) -> None:
    """Rebuild the states of these services from `since` on; unchanged rows are kept.

    Idempotent. Runs a constant number of queries for any number of services.
    """
    # NO KEY UPDATE, because FOR UPDATE conflicts with every transaction that has just inserted a
    # reference to the service.
    locked = Service.objects.select_for_update(of=("self",), no_key=True).filter(pk__in=service_ids)
    services = list(locked.order_by("pk"))
    # Read after the lock, so that the sources are as recent as the rows to be written.
    sources = MonitoringSource.objects.in_bulk(
        {service.source_id for service in services if service.source_id}
    )
    stored = _stored(services, since)
    begins = {}
    for service in services:
        rows = stored[service.pk]
        begins[service.pk] = rows[0].started_at if rows else BEGINNING
    claims = _claims(services, sources, min(begins.values(), default=BEGINNING))
    stale: list[int] = []
    fresh: list[StateInterval] = []
    for service in services:
        timeline = build(
            claims[service.pk], _DEFAULT_CAUSE[Monitoring(service.monitoring)], begins[service.pk]
        )
        expected = {_key(interval): interval for interval in _rows(service, timeline)}
        present = set()
        for interval in stored[service.pk]:
            present.add(_key(interval))
            if _key(interval) not in expected:
                stale.append(interval.pk)
        fresh += [interval for key, interval in expected.items() if key not in present]
    StateInterval.objects.filter(pk__in=stale).delete()
    StateInterval.objects.bulk_create(fresh)


def _stored(services: Iterable[Service], since: datetime) -> dict[int, list[StateInterval]]:
    """Return the rows that a change at `since` may affect.

    These include the row that ends there, to merge equal states.
    """
    intervals = StateInterval.objects.filter(
        Q(ended_at=None) | Q(ended_at__gte=since), service__in=services
    )
    by_service: dict[int, list[StateInterval]] = defaultdict(list)
    for interval in intervals.order_by("started_at"):
        by_service[interval.service_id].append(interval)
    return by_service


def _rows(service: Service, claims: Iterable[Claim]) -> list[StateInterval]:
    intervals = []
    for claim in claims:
        intervals.append(
            StateInterval(
                service=service,
                state=claim.state,
                started_at=claim.started_at,
                ended_at=claim.ended_at,
                cause=claim.cause,
                incident_id=claim.ref if claim.cause in (Cause.INCIDENT, Cause.STALE) else None,
                window_id=claim.ref if claim.cause == Cause.WINDOW else None,
            )
        )
    return intervals


def _key(interval: StateInterval) -> tuple[object, ...]:
    return (
        interval.started_at,
        interval.ended_at,
        interval.state,
        interval.cause,
        interval.incident_id,
        interval.window_id,
    )


def _claims(
    services: Collection[Service], sources: Mapping[int, MonitoringSource], since: datetime
) -> dict[int, list[Claim]]:
    """Return the claims of all inputs about each service from `since` on."""
    claims: dict[int, list[Claim]] = defaultdict(list)
    incidents = Incident.objects.filter(service__in=services).prefetch_related("changes")
    for incident in incidents.overlapping(since, None):
        claims[incident.service_id] += claims_of_incident(incident)
    plans = DowntimeWindow.services.through.objects.filter(
        service__in=services, downtimewindow__ends_at__gt=since
    )
    for plan in plans.select_related("downtimewindow"):
        window = plan.downtimewindow
        if window.over_at > window.starts_at and window.effect != WindowEffect.AT_RISK:
            claims[plan.service_id].append(
                Claim(window.starts_at, window.over_at, State.MAINTENANCE, Cause.WINDOW, window.pk)
            )
    gaps: dict[int, list[Span]] = defaultdict(list)
    for gap in MonitoringGap.objects.filter(source__in=sources).overlapping(since, None):
        gaps[gap.source_id].append(Span(gap.started_at, gap.ended_at))
    for service in services:
        source = sources.get(service.source_id or 0)
        claims[service.pk] += _claims_of_monitoring(service, source, gaps[service.source_id or 0])
    return claims


def claims_of_incident(incident: Incident) -> list[Claim]:
    """Return an incident's claims: its states while the lease is valid, then unknown."""
    start = incident.started_at
    end = incident.ended_at
    unknown = incident.unknown_from
    if unknown is None or (end is not None and unknown >= end):
        stale = None
    else:
        stale = max(start, unknown)
    changes = [(change.at, State(change.state)) for change in incident.changes.all()]
    known = cut_into_phases(Span(start, stale or end), changes or [(start, State(incident.state))])
    claims = []
    for span, state in known:
        claims.append(Claim(span.started_at, span.ended_at, state, Cause.INCIDENT, incident.pk))
    return claims + ([Claim(stale, end, State.UNKNOWN, Cause.STALE, incident.pk)] if stale else [])


def states_of_incident(incident: Incident, at: datetime) -> list[Claim]:
    """Return an incident's states up to `at`; a future expiry of its lease is ignored."""
    states = []
    for claim in claims_of_incident(incident):
        if claim.started_at > at:
            continue
        if claim.ended_at and claim.ended_at > at:
            states.append(replace(claim, ended_at=None))
        else:
            states.append(claim)
    return states


def _claims_of_monitoring(
    service: Service, source: MonitoringSource | None, gaps: Iterable[Span]
) -> list[Claim]:
    """Return when a service counts as up unless a problem is reported."""
    if service.monitored_since is None or service.monitoring == Monitoring.NONE:
        return []
    if service.monitoring == Monitoring.MANUAL or source is None:
        return [Claim(service.monitored_since, None, State.UP, Cause.MANUAL)]
    watched = Span(max(service.monitored_since, source.monitored_since), source.covered_until)
    return [Claim(s.started_at, s.ended_at, State.UP, Cause.FEED) for s in subtract(watched, gaps)]
