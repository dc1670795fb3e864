"""Outages of services during a job, in a constant number of queries."""

from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

from apps.statusboard.domain.board import StateSpan
from apps.statusboard.domain.timeline import Span, clip
from apps.statusboard.enums import Cause, State, worst
from apps.statusboard.models import Service, StateInterval

Overlap = Literal["yes", "no", "unknown"]


@dataclass(frozen=True)
class ServiceOutage:
    """Whether a service had an outage while a job ran, and its state spans, clipped to the job.

    `state` is the worst of them: it distinguishes degraded from down.
    """

    service: Service
    overlap: Overlap
    state: State
    intervals: tuple[StateSpan, ...]


def outages_during(
    service_ids: Collection[int], started_at: datetime, ended_at: datetime | None, at: datetime
) -> list[ServiceOutage]:
    """Return, for each service by name, whether it had an outage during [started_at, ended_at), or until `at`.

    Any moment down, degraded or in maintenance: yes. Else any moment unknown: unknown. Else no. Touching intervals do
    not overlap; a job of zero length counts as the moment of its start.
    """
    end = max(ended_at or at, started_at)
    wanted = Span(started_at, end)
    wide = end if end > started_at else started_at + timedelta(microseconds=1)
    rows = StateInterval.objects.filter(service__in=service_ids).overlapping(started_at, wide)
    by_service: dict[int, list[StateSpan]] = defaultdict(list)
    for row in rows.select_related("incident").order_by("started_at"):
        if part := clip(Span(row.started_at, row.ended_at), wanted):
            by_service[row.service_id].append(
                StateSpan(State(row.state), part.started_at, part.ended_at, Cause(row.cause), row.incident)
            )
    services = Service.objects.filter(pk__in=service_ids).order_by("name", "pk")
    return [_outage(service, by_service[service.pk]) for service in services]


def _outage(service: Service, spans: list[StateSpan]) -> ServiceOutage:
    state = worst(span.state for span in spans)
    overlap: Overlap = "no" if state == State.UP else "unknown" if state == State.UNKNOWN else "yes"
    return ServiceOutage(service, overlap, state, tuple(spans))
