"""Read the status board with constant numbers of queries: states, history, disruptions."""

from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from functools import cached_property

from apps.accounts.models import User
from apps.statusboard.domain.board.availability import (
    DAYS,
    Availability,
    AvailabilitySlot,
    read_daily_slots,
    read_hourly_slots,
    sum_availability,
)
from apps.statusboard.domain.monitoring.sources import source_faults
from apps.statusboard.domain.states.timeline import BEGINNING
from apps.statusboard.enums import Cause, Monitoring, State, severity_of, worst
from apps.statusboard.models import (
    Announcement,
    DowntimeWindow,
    Incident,
    RawPayload,
    Service,
    StateInterval,
)


@dataclass(frozen=True)
class StateSpan:
    """A time span of a service in one state; `ended_at` is None while it is ongoing."""

    state: State
    started_at: datetime
    ended_at: datetime | None
    cause: Cause
    incident: Incident | None = None


@dataclass(frozen=True)
class BoardRow:
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
    slots: tuple[AvailabilitySlot, ...] = ()
    has_own_state: bool = True
    fault: RawPayload | None = None

    @cached_property
    def availability(self) -> Availability:
        """The availability over the row's slots."""
        return sum_availability(self.slots)

    @property
    def is_from_components(self) -> bool:
        """Return whether the state comes from a component."""
        return self.has_own_state and self.state != self.own

    @property
    def source_label(self) -> str:
        """The source of the service's own state, such as `Grafana, no data`, and its fault."""
        label = self._source
        if self.cause == Cause.STALE and self.incident is not None:
            label += ", stale"
        if self.cause == Cause.NO_DATA and self._is_from_feed:
            label += ", no data"
        if self.fault:
            label += ", payload not read"
        return label

    @property
    def _source(self) -> str:
        if self.incident is not None:
            return str(self.incident.source or self.incident.opened_by)
        if self._is_from_feed:
            return str(self.service.source)
        return self.cause.label

    @property
    def _is_from_feed(self) -> bool:
        return (
            self.incident is None
            and self.service.source is not None
            and self.cause in (Cause.NO_DATA, Cause.FEED)
        )


@dataclass(frozen=True)
class _BoardData:
    """What the rows of a board show, read once for all services, by the service's primary key.

    `children` are by the parent's primary key, None for services without one. `faults` are by the
    primary key of the source.
    """

    intervals: dict[int, StateInterval]
    windows: dict[int, DowntimeWindow]
    slots: Mapping[int, tuple[AvailabilitySlot, ...]]
    children: Mapping[int | None, list[Service]]
    faults: Mapping[int, RawPayload]


def read_board(
    at: datetime, *, zone: tzinfo = UTC, days: int = DAYS, by_hour: bool = False
) -> list[BoardRow]:
    """Return all services in tree order, with state, next window, and slots in `zone`."""
    services = list(Service.objects.select_related("source").order_by("name", "pk"))
    slots: dict[int, tuple[AvailabilitySlot, ...]] = {}
    if days:
        read_slots = read_hourly_slots if by_hour else read_daily_slots
        slots = read_slots(services, at, zone=zone, days=days)
    return _tree(services, at, slots)


def board_row(service: Service, at: datetime, *, zone: tzinfo = UTC) -> BoardRow:
    """Return one service's row with its last days in `zone`, without its components."""
    return _tree([service], at, read_daily_slots([service], at, zone=zone))[0]


def _tree(
    services: list[Service], at: datetime, slots: Mapping[int, tuple[AvailabilitySlot, ...]]
) -> list[BoardRow]:
    """Return the rows of these services, each followed by the rows of its components."""
    intervals = StateInterval.objects.current(at).select_related("incident__source", "window")
    plans = DowntimeWindow.services.through.objects.filter(
        downtimewindow__starts_at__gt=at, downtimewindow__cancelled_at=None
    )
    # The last one with a key stays in a dictionary: the next window.
    latest_first = plans.select_related("downtimewindow").order_by("-downtimewindow__starts_at")

    known = {service.pk for service in services}
    children: dict[int | None, list[Service]] = defaultdict(list)
    for service in services:
        parent = service.parent_id if service.parent_id in known else None
        children[parent].append(service)

    data = _BoardData(
        intervals={interval.service_id: interval for interval in intervals},
        windows={plan.service_id: plan.downtimewindow for plan in latest_first},
        slots=slots,
        children=children,
        faults=source_faults(at),
    )
    rows: list[BoardRow] = []
    for service in children[None]:
        rows += _branch(service, 0, data)
    return rows


def _branch(service: Service, depth: int, data: _BoardData) -> list[BoardRow]:
    """Return the row of a service, and the rows of its components below it."""
    rows_below: list[BoardRow] = []
    for child in data.children.get(service.pk, []):
        rows_below += _branch(child, depth + 1, data)
    states_below = [row.state for row in rows_below if row.depth == depth + 1]

    interval = data.intervals.get(service.pk)
    own = State(interval.state) if interval else State.UNKNOWN
    # A service with components that is not monitored itself is a group without a state of its own.
    is_unknown = service.monitoring == Monitoring.NONE and own == State.UNKNOWN
    is_group = bool(states_below) and is_unknown
    since = None
    until = None
    if interval and interval.started_at > BEGINNING:
        since = interval.started_at
    if interval and own == State.MAINTENANCE:
        until = interval.ended_at

    row = BoardRow(
        service=service,
        depth=depth,
        state=worst(states_below if is_group else [own, *states_below]),
        own=own,
        since=since,
        until=until,
        cause=Cause(interval.cause) if interval else Cause.NOT_MONITORED,
        incident=interval.incident if interval else None,
        next_window=data.windows.get(service.pk),
        slots=data.slots.get(service.pk, ()),
        has_own_state=not is_group,
        fault=data.faults.get(service.source_id or 0),
    )
    return [row, *rows_below]


@dataclass(frozen=True)
class Disruption:
    """A service that is not available."""

    service: Service
    state: State
    since: datetime
    until: datetime | None
    incident: Incident | None


def list_disruptions(
    at: datetime, states: Collection[State] = (State.DOWN, State.DEGRADED, State.MAINTENANCE)
) -> list[Disruption]:
    """Return the services in these states, worst first, then longest first. Runs one query."""
    intervals = (
        StateInterval.objects.current(at)
        .filter(state__in=states)
        .select_related("service", "incident")
    )
    longest_first = []
    for interval in intervals.order_by("started_at", "service__name"):
        ended_at = interval.ended_at if interval.state == State.MAINTENANCE else None
        longest_first.append(
            Disruption(
                interval.service,
                State(interval.state),
                interval.started_at,
                ended_at,
                interval.incident,
            )
        )
    return sorted(longest_first, key=lambda disruption: severity_of(disruption.state))


@dataclass(frozen=True)
class Strip:
    """The content of the banner on every page; false if there is nothing to show."""

    disruptions: list[Disruption]
    announcements: list[Announcement]

    def __bool__(self) -> bool:
        return bool(self.disruptions or self.announcements)


def read_strip(at: datetime, user: User) -> Strip:
    """Return disruptions, and announcements that advise against submitting.

    Runs two queries if there are none.
    """
    advised = Announcement.objects.current(at).filter(do_not_submit=True)
    # Most pages need no filter by user: building that query takes 2 ms for a liaison, three times
    # as long as the check.
    announcements = list(advised.visible_to(user)) if advised else []
    return Strip(list_disruptions(at), announcements)


def state_history(service: Service, started_at: datetime, at: datetime) -> list[StateInterval]:
    """Return a service's states from `started_at` to `at`, newest first.

    The current state has no end.
    """
    intervals = StateInterval.objects.filter(service=service).overlapping(started_at, at)
    states = list(intervals.select_related("incident", "window").order_by("-started_at"))
    for interval in states:
        if interval.ended_at and interval.ended_at > at and interval.state != State.MAINTENANCE:
            interval.ended_at = None
    return states
