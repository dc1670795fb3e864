"""Aggregate the states of services by hour and by day, in one query for any number of services."""

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

from apps.core.domain.quantities import round_duration
from apps.statusboard.enums import State, worst
from apps.statusboard.models import Service, StateInterval

DAYS = 90
#: Days for which hourly slots are shown.
HOURLY_DAYS = 7
_HOUR = timedelta(hours=1)


class Stretch(NamedTuple):
    """A service's state in [started_at, ended_at), and the incident that caused it."""

    state: str
    started_at: datetime
    ended_at: datetime | None
    incident_pk: int | None


@dataclass(frozen=True)
class AvailabilitySlot:
    """One hour or day of a service in the reader's zone: its worst state, and seconds by state.

    `incident_pk` is that of its incident if it has exactly one.
    """

    started_at: datetime
    ended_at: datetime
    is_hour: bool
    state: State
    seconds: Mapping[State, float]
    incident_pk: int | None

    @property
    def date(self) -> date:
        return self.started_at.date()

    @property
    def summary(self) -> str:
        """The text of the mark's tooltip."""
        return _summary(
            self.started_at.replace(tzinfo=None), self.is_hour, tuple(self.seconds.items())
        )


# A board has a thousand slots, most of them unchanged since the last request.
@lru_cache(maxsize=8_000)
def _summary(local: datetime, is_hour: bool, seconds: tuple[tuple[State, float], ...]) -> str:
    seconds_by_state = dict(seconds)
    lengths = []
    for state in State:
        if seconds_by_state.get(state):
            lengths.append(f"{state} {_length(seconds_by_state[state], is_hour)}")
    day = f"{local:%a} {local.day} {local:%b}"
    if is_hour:
        day += f" {local:%H:%M}"
    return f"{day}: {', '.join(lengths) or 'unknown'}"


def _length(seconds: float, is_hour: bool) -> str:
    minutes = max(1, round(seconds / 60))
    if is_hour:
        return "all hour" if minutes >= 60 else round_duration(60 * minutes)
    if minutes >= 23 * 60:
        return "all day"
    return round_duration(60 * minutes)


@dataclass(frozen=True)
class Availability:
    """Seconds in each state.

    Shares refer to the time in a known, unplanned state; None if there is no such time.
    """

    seconds: Mapping[State, float]

    @property
    def known(self) -> float:
        """Seconds in a known, unplanned state."""
        return sum(self.seconds.get(state, 0) for state in (State.UP, State.DEGRADED, State.DOWN))

    @property
    def up(self) -> float | None:
        return self._share(State.UP)

    @property
    def degraded(self) -> float | None:
        return self._share(State.DEGRADED)

    @property
    def down(self) -> float | None:
        return self._share(State.DOWN)

    @property
    def planned_seconds(self) -> float:
        return self.seconds.get(State.MAINTENANCE, 0)

    @property
    def unknown_seconds(self) -> float:
        return self.seconds.get(State.UNKNOWN, 0)

    def _share(self, state: State) -> float | None:
        return self.seconds.get(state, 0) / self.known if self.known else None


def sum_availability(slots: Iterable[AvailabilitySlot]) -> Availability:
    """Return the sums over slots."""
    totals: dict[State, float] = {}
    for slot in slots:
        for state, seconds in slot.seconds.items():
            totals[state] = totals.get(state, 0) + seconds
    return Availability(totals)


def read_daily_slots(
    services: Iterable[Service], at: datetime, *, zone: tzinfo = UTC, days: int = DAYS
) -> dict[int, tuple[AvailabilitySlot, ...]]:
    """Return the last `days` of each service in `zone`, by primary key, oldest first.

    The last slot ends at `at`.
    """
    last = at.astimezone(zone).date()
    dates = [last - timedelta(days=back) for back in range(days - 1, -1, -1)]
    return _slots(services, [*(_midnight(day, zone) for day in dates), at], zone, is_hour=False)


def read_hourly_slots(
    services: Iterable[Service], at: datetime, *, zone: tzinfo = UTC, days: int = HOURLY_DAYS
) -> dict[int, tuple[AvailabilitySlot, ...]]:
    """Return the hours of the last `days` of each service in `zone`, as `read_daily_slots` does."""
    edges = [_midnight(at.astimezone(zone).date() - timedelta(days=days - 1), zone)]
    while edges[-1] + _HOUR < at:
        edges.append(edges[-1] + _HOUR)
    return _slots(services, [*edges, at], zone, is_hour=True)


def _midnight(day: date, zone: tzinfo) -> datetime:
    return datetime.combine(day, time(), zone).astimezone(UTC)


def _slots(
    services: Iterable[Service], edges: Sequence[datetime], zone: tzinfo, *, is_hour: bool
) -> dict[int, tuple[AvailabilitySlot, ...]]:
    stretches: dict[int, list[Stretch]] = {service.pk: [] for service in services}
    rows = StateInterval.objects.filter(service__in=stretches).overlapping(edges[0], edges[-1])
    columns = ("service_id", "state", "started_at", "ended_at", "incident_id")
    for pk, state, started_at, ended_at, incident_pk in rows.values_list(*columns):
        stretches[pk].append(Stretch(state, started_at, ended_at, incident_pk))

    periods = list(pairwise(edge.astimezone(zone) for edge in edges))
    slots: dict[int, tuple[AvailabilitySlot, ...]] = {}
    for pk, of_service in stretches.items():
        in_order = []
        for (start, end), (seconds, incidents) in zip(
            periods, cut_into_slots(of_service, edges), strict=True
        ):
            incident_pk = incidents.pop() if len(incidents) == 1 else None
            in_order.append(
                AvailabilitySlot(start, end, is_hour, worst(seconds), seconds, incident_pk)
            )
        slots[pk] = tuple(in_order)
    return slots


def cut_into_slots(
    stretches: Iterable[Stretch], edges: Sequence[datetime]
) -> list[tuple[dict[State, float], set[int]]]:
    """Return the seconds in each state, and the incidents, between each pair of adjacent edges."""
    slots: list[tuple[dict[State, float], set[int]]] = [({}, set()) for _ in edges[1:]]
    lengths = [(after - before).total_seconds() for before, after in pairwise(edges)]
    for state, started_at, ended_at, incident_pk in stretches:
        start = max(started_at, edges[0])
        end = min(ended_at or edges[-1], edges[-1])
        slot_state = State(state)
        place = bisect_right(edges, start) - 1
        while place < len(slots) and edges[place] < end:
            seconds, incidents = slots[place]
            if start <= edges[place] and edges[place + 1] <= end:
                part = lengths[place]
            else:
                part = (min(end, edges[place + 1]) - max(start, edges[place])).total_seconds()
            if part > 0:
                seconds[slot_state] = seconds.get(slot_state, 0) + part
                if incident_pk is not None:
                    incidents.add(incident_pk)
            place += 1
    return slots
