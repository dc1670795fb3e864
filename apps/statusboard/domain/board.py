"""Read the status board: current states, history by day, disruptions. Constant numbers of queries."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from functools import cached_property, lru_cache
from itertools import pairwise

from apps.accounts.models import User
from apps.core.domain.quantities import round_duration
from apps.statusboard.domain.sources import source_faults
from apps.statusboard.domain.timeline import BEGINNING
from apps.statusboard.enums import Cause, Monitoring, State, worst
from apps.statusboard.models import Announcement, DowntimeWindow, Incident, RawPayload, Service, StateInterval

DAYS = 90


@dataclass(frozen=True)
class StateSpan:
    """A time span of a service in one state; None as `ended_at` means ongoing."""

    state: State
    started_at: datetime
    ended_at: datetime | None
    cause: Cause
    incident: Incident | None = None


@dataclass(frozen=True)
class Day:
    """One day of a service: its worst state, and the seconds in each state."""

    date: date
    state: State
    seconds: Mapping[State, float]

    @cached_property
    def summary(self) -> str:
        """Describe the day, for the mark's title."""
        lengths = ", ".join(f"{state} {_length(self.seconds[state])}" for state in State if self.seconds.get(state))
        return f"{self.date:%a} {self.date.day} {self.date:%b}: {lengths or 'unknown'}"


@lru_cache(maxsize=4_000)  # a board has a thousand days, mostly equal and the same as last time
def _day(date: date, seconds: tuple[tuple[State, float], ...]) -> Day:
    found = dict(seconds)
    return Day(date, worst(found), found)


def _length(seconds: float) -> str:
    minutes = max(1, round(seconds / 60))
    if minutes >= 23 * 60:
        return "all day"
    return round_duration(60 * minutes)


@dataclass(frozen=True)
class Row:
    """A service on the board. `state` includes its components; `own` is its own state."""

    service: Service
    depth: int
    state: State
    own: State
    since: datetime | None
    until: datetime | None
    cause: Cause
    incident: Incident | None
    next_window: DowntimeWindow | None
    days: tuple[Day, ...] = ()
    has_own_state: bool = True
    fault: RawPayload | None = None

    @property
    def is_from_components(self) -> bool:
        """Whether the state comes from a component."""
        return self.has_own_state and self.state != self.own

    @property
    def source_label(self) -> str:
        """Name the source of its own state, and its fault."""
        return self._source + (", payload not read" if self.fault else "")

    @property
    def _source(self) -> str:
        if self.incident is not None:
            source = self.incident.source.name if self.incident.source else self.incident.opened_by
            return f"{source}, stale" if self.cause == Cause.STALE else source
        if self.service.source is not None and self.cause in (Cause.NO_DATA, Cause.FEED):
            return f"{self.service.source.name}{', no data' if self.cause == Cause.NO_DATA else ''}"
        return self.cause.label


@dataclass(frozen=True)
class _Board:
    """Data of all services, read at once, and the services below each service."""

    now: dict[int, StateInterval]
    windows: dict[int, DowntimeWindow]
    days: dict[int, tuple[Day, ...]]
    children: Mapping[int | None, list[Service]]
    faults: Mapping[int, RawPayload]


def board(at: datetime, *, zone: tzinfo = UTC, days: int = DAYS) -> list[Row]:
    """Return all services in tree order, with state, next window and days in `zone`."""
    services = list(Service.objects.select_related("source").order_by("name", "pk"))
    return _tree(services, at, zone, days)


def board_row(service: Service, at: datetime, *, zone: tzinfo = UTC) -> Row:
    """Return one service's row, without its components."""
    return _tree([service], at, zone, DAYS)[0]


def _tree(services: list[Service], at: datetime, zone: tzinfo, days: int) -> list[Row]:
    now = StateInterval.objects.current(at).select_related("incident__source", "window")
    plans = DowntimeWindow.services.through.objects.filter(
        downtimewindow__starts_at__gt=at, downtimewindow__cancelled_at=None
    ).order_by("-downtimewindow__starts_at")
    children: dict[int | None, list[Service]] = defaultdict(list)
    known = {service.pk for service in services}
    for service in services:
        children[service.parent_id if service.parent_id in known else None].append(service)
    read = _Board(
        now={row.service_id: row for row in now},
        windows={plan.service_id: plan.downtimewindow for plan in plans.select_related("downtimewindow")},
        days=daily(services, at, zone=zone, days=days) if days else {},
        children=children,
        faults=source_faults(at),
    )
    return [row for top in children[None] for row in _branch(top, 0, read)]


def _branch(service: Service, depth: int, read: _Board) -> list[Row]:
    below = [row for child in read.children.get(service.pk, []) for row in _branch(child, depth + 1, read)]
    row = read.now.get(service.pk)
    own = State(row.state) if row else State.UNKNOWN
    states = [found.state for found in below if found.depth == depth + 1]
    # A service with components that is not monitored itself is a group: it has no state of its own.
    is_group = bool(states) and service.monitoring == Monitoring.NONE and own == State.UNKNOWN
    return [
        Row(
            service=service,
            depth=depth,
            state=worst(states if is_group else [own, *states]),
            own=own,
            since=row.started_at if row and row.started_at > BEGINNING else None,
            until=row.ended_at if row and row.state == State.MAINTENANCE else None,
            cause=Cause(row.cause) if row else Cause.NOT_MONITORED,
            incident=row.incident if row else None,
            next_window=read.windows.get(service.pk),
            days=read.days.get(service.pk, ()),
            has_own_state=not is_group,
            fault=read.faults.get(service.source_id or 0),
        ),
        *below,
    ]


def daily(
    services: Iterable[Service], at: datetime, *, zone: tzinfo = UTC, days: int = DAYS
) -> dict[int, tuple[Day, ...]]:
    """Return each service's last days in `zone`, oldest first, the last one up to `at`."""
    last = at.astimezone(zone).date()
    dates = [last - timedelta(days=back) for back in range(days - 1, -1, -1)]
    edges = [datetime.combine(day, time(), zone).astimezone(UTC) for day in dates] + [at]
    lengths = [(after - before).total_seconds() for before, after in pairwise(edges)]
    seconds: dict[int, list[dict[State, float]]] = {service.pk: [{} for _ in dates] for service in services}
    rows = StateInterval.objects.filter(service__in=seconds).overlapping(edges[0], at)
    for service_id, state, started_at, ended_at in rows.values_list("service_id", "state", "started_at", "ended_at"):
        start, end, own, word = max(started_at, edges[0]), min(ended_at or at, at), seconds[service_id], State(state)
        place = max(0, (start - edges[0]).days - 1)
        while place < len(dates) and edges[place] < end:
            if start <= edges[place] and edges[place + 1] <= end:
                part = lengths[place]
            else:
                part = (min(end, edges[place + 1]) - max(start, edges[place])).total_seconds()
            if part > 0:
                own[place][word] = own[place].get(word, 0) + part
            place += 1
    return {
        pk: tuple(_day(day, tuple(found.items())) for day, found in zip(dates, by_day, strict=True))
        for pk, by_day in seconds.items()
    }


@dataclass(frozen=True)
class Disruption:
    """A service that is not available."""

    service: Service
    state: State
    since: datetime
    until: datetime | None
    incident: Incident | None


def disruptions(
    at: datetime, states: Collection[State] = (State.DOWN, State.DEGRADED, State.MAINTENANCE)
) -> list[Disruption]:
    """Return the services in these states, worst first, then longest first. One query."""
    rows = StateInterval.objects.current(at).filter(state__in=states).select_related("service", "incident")
    order = list(State)
    found = [
        Disruption(
            row.service,
            State(row.state),
            row.started_at,
            row.ended_at if row.state == State.MAINTENANCE else None,
            row.incident,
        )
        for row in rows.order_by("started_at", "service__name")
    ]
    return sorted(found, key=lambda each: order.index(each.state))


@dataclass(frozen=True)
class Strip:
    """Content of the banner on every page; false if there is none."""

    disruptions: list[Disruption]
    announcements: list[Announcement]

    def __bool__(self) -> bool:
        return bool(self.disruptions or self.announcements)


def strip(at: datetime, user: User) -> Strip:
    """Return disruptions, and announcements that advise against submitting. Two queries."""
    advised = Announcement.objects.visible_to(user).current(at).filter(do_not_submit=True)
    return Strip(disruptions(at), list(advised))


def state_history(service: Service, started_at: datetime, at: datetime) -> list[StateInterval]:
    """Return a service's states from `started_at` to `at`, newest first; the current one has no end."""
    rows = StateInterval.objects.filter(service=service).overlapping(started_at, at)
    found = list(rows.select_related("incident", "window").order_by("-started_at"))
    for row in found:
        if row.ended_at and row.ended_at > at and row.state != State.MAINTENANCE:
            row.ended_at = None
    return found
