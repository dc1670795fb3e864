"""Outages of services during one or more jobs, in a constant number of queries."""

from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import chain
from typing import Literal

from apps.statusboard.domain.board.board import StateSpan
from apps.statusboard.domain.states.timeline import Span, clip
from apps.statusboard.enums import Cause, State, worst
from apps.statusboard.models import Service, StateInterval

Overlap = Literal["yes", "no", "unknown"]
#: States in which a service does not work normally.
OUTAGES = frozenset({State.DOWN, State.DEGRADED, State.MAINTENANCE})


@dataclass(frozen=True)
class ServiceOutage:
    """Whether a service had an outage while a job ran, and its states during the job.

    Outages keep their own start and end. `state` is the worst of the states, so that degraded and
    down can be distinguished.
    """

    service: Service
    overlap: Overlap
    state: State
    intervals: tuple[StateSpan, ...]


@dataclass(frozen=True, slots=True)
class Exposure:
    """Services that a job needed while it ran, in [started_at, ended_at)."""

    service_ids: Collection[int]
    started_at: datetime
    ended_at: datetime


def outages_during(
    service_ids: Collection[int], started_at: datetime, ended_at: datetime | None, at: datetime
) -> list[ServiceOutage]:
    """Return, for each service by name, whether it had an outage during [started_at, ended_at).

    Without `ended_at`, the job lasts until `at`. Any moment down, degraded or in maintenance means
    "yes", else any moment unknown means "unknown", else the answer is "no". Intervals that only
    touch do not overlap. A job of zero length counts as the moment of its start.
    """
    return outages_of_each([Exposure(service_ids, started_at, max(ended_at or at, started_at))])[0]


def outages_of_each(exposures: Sequence[Exposure]) -> list[list[ServiceOutage]]:
    """Return the result of `outages_during` for each exposure, in two queries for all of them."""
    ids = set(chain.from_iterable(exposure.service_ids for exposure in exposures))
    if not ids:
        return [[] for _ in exposures]
    first = min(exposure.started_at for exposure in exposures)
    last = max(_wide_end(exposure) for exposure in exposures)
    by_service: dict[int, list[StateInterval]] = defaultdict(list)
    intervals = StateInterval.objects.filter(service__in=ids).overlapping(first, last)
    for interval in intervals.select_related("incident").order_by("started_at"):
        by_service[interval.service_id].append(interval)
    services = list(Service.objects.filter(pk__in=ids).order_by("name", "pk"))

    outages = []
    for exposure in exposures:
        outages_of_exposure = []
        for service in services:
            if service.pk not in exposure.service_ids:
                continue
            spans = _spans(by_service[service.pk], exposure)
            state = worst(span.state for span in spans)
            overlap: Overlap = "yes"
            if state == State.UP:
                overlap = "no"
            elif state == State.UNKNOWN:
                overlap = "unknown"
            outages_of_exposure.append(ServiceOutage(service, overlap, state, tuple(spans)))
        outages.append(outages_of_exposure)
    return outages


def _wide_end(exposure: Exposure) -> datetime:
    """Return the end of an exposure, at least one microsecond after its start."""
    return max(exposure.ended_at, exposure.started_at + timedelta(microseconds=1))


def _spans(intervals: Sequence[StateInterval], exposure: Exposure) -> list[StateSpan]:
    """Return the states of one service during an exposure; only outages are not clipped to it."""
    job = Span(exposure.started_at, exposure.ended_at)
    end = _wide_end(exposure)
    spans = []
    for interval in intervals:
        if interval.started_at >= end or (
            interval.ended_at is not None and interval.ended_at <= exposure.started_at
        ):
            continue
        whole = Span(interval.started_at, None if _lasts(interval) else interval.ended_at)
        part = whole if interval.state in OUTAGES else clip(whole, job)
        if part:
            spans.append(
                StateSpan(
                    State(interval.state),
                    part.started_at,
                    part.ended_at,
                    Cause(interval.cause),
                    interval.incident,
                )
            )
    return spans


def _lasts(interval: StateInterval) -> bool:
    """Return whether an outage is not over: its interval ends with the lease of its incident.

    Each repetition of the alert extends the lease, so the end is no forecast.
    """
    incident = interval.incident
    if incident is None or not incident.is_open or incident.stale_at is not None:
        return False
    return interval.ended_at == incident.lease_expires_at
