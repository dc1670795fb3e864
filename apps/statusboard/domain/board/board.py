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
    Slot,
    availability,
    daily,
    hourly,
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
    slots: tuple[Slot, ...] = ()
    has_own_state: bool = True
    fault: RawPayload | None = None

    @cached_property
    def availability(self) -> Availability:
        """The availability over the row's slots."""
        return availability(self.slots)

    @property
    def is_from_components(self) -> bool:
        """Return whether the state comes from a component."""
        return self.has_own_state and self.state != self.own

    @property
    def source_label(self) -> str:
        """The source of the service's own state, and its fault."""
        return self._source + (", payload not read" if self.fault else "")

    @property
    def _source(self) -> str:
        if self.incident is not None:
            if self.incident.source:
                source = self.incident.source.name
            else:
                source = self.incident.opened_by
            return f"{source}, stale" if self.cause == Cause.STALE else source
        if self.service.source is not None and self.cause in (Cause.NO_DATA, Cause.FEED):
            return f"{self.service.source.name}{', no data' if self.cause == Cause.NO_DATA else ''}"
        return self.cause.label


@dataclass(frozen=True)
class _Board:
    """Data of all services, read once, and the children of each service."""

    now: dict[int, StateInterval]
    windows: dict[int, DowntimeWindow]
    slots: dict[int, tuple[Slot, ...]]
    children: Mapping[int | None, list[Service]]
    faults: Mapping[int, RawPayload]


def board(
    at: datetime, *, zone: tzinfo = UTC, days: int = DAYS, by_hour: bool = False
) -> list[BoardRow]:
    """Return all services in tree order, with state, next window, and slots in `zone`."""
    services = list(Service.objects.select_related("source").order_by("name", "pk"))
    if days:
        slots = (hourly if by_hour else daily)(services, at, zone=zone, days=days)
    else:
        slots = {}
    return _tree(services, at, slots)


def board_row(service: Service, at: datetime, *, zone: tzinfo = UTC) -> BoardRow:
    """Return one service's row with its last days in `zone`, without its components."""
    return _tree([service], at, daily([service], at, zone=zone))[0]


def _tree(
    services: list[Service], at: datetime, slots: dict[int, tuple[Slot, ...]]
) -> list[BoardRow]:
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
        windows={
            plan.service_id: plan.downtimewindow for plan in plans.select_related("downtimewindow")
        },
        slots=slots,
        children=children,
        faults=source_faults(at),
    )
    rows: list[BoardRow] = []
    for top in children[None]:
        rows += _branch(top, 0, read)
    return rows


def _branch(service: Service, depth: int, read: _Board) -> list[BoardRow]:
    below: list[BoardRow] = []
    for child in read.children.get(service.pk, []):
        below.extend(_branch(child, depth + 1, read))
    row = read.now.get(service.pk)
    own = State(row.state) if row else State.UNKNOWN
    states = []
    for component in below:
        if component.depth == depth + 1:
            states.append(component.state)
    # A service with components that is not monitored itself is a group without a state of its own.
    is_group = bool(states) and service.monitoring == Monitoring.NONE and own == State.UNKNOWN
    return [
        BoardRow(
            service=service,
            depth=depth,
            state=worst(states if is_group else [own, *states]),
            own=own,
            since=row.started_at if row and row.started_at > BEGINNING else None,
            until=row.ended_at if row and row.state == State.MAINTENANCE else None,
            cause=Cause(row.cause) if row else Cause.NOT_MONITORED,
            incident=row.incident if row else None,
            next_window=read.windows.get(service.pk),
            slots=read.slots.get(service.pk, ()),
            has_own_state=not is_group,
            fault=read.faults.get(service.source_id or 0),
        ),
        *below,
    ]


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
    """Return the services in these states, worst first, then longest first. Runs one query."""
    rows = (
        StateInterval.objects.current(at)
        .filter(state__in=states)
        .select_related("service", "incident")
    )
    longest_first = []
    for row in rows.order_by("started_at", "service__name"):
        ended_at = row.ended_at if row.state == State.MAINTENANCE else None
        longest_first.append(
            Disruption(row.service, State(row.state), row.started_at, ended_at, row.incident)
        )
    return sorted(longest_first, key=lambda disruption: severity_of(disruption.state))


@dataclass(frozen=True)
class Strip:
    """The content of the banner on every page; false if there is nothing to show."""

    disruptions: list[Disruption]
    announcements: list[Announcement]

    def __bool__(self) -> bool:
        return bool(self.disruptions or self.announcements)


def strip(at: datetime, user: User) -> Strip:
    """Return disruptions, and announcements that advise against submitting.

    Runs two queries if there are none.
    """
    advised = Announcement.objects.current(at).filter(do_not_submit=True)
    # Most pages need no filter by user: building that query takes 2 ms for a liaison, three times
    # as long as the check.
    announcements = list(advised.visible_to(user)) if advised else []
    return Strip(disruptions(at), announcements)


def state_history(service: Service, started_at: datetime, at: datetime) -> list[StateInterval]:
    """Return a service's states from `started_at` to `at`, newest first.

    The current state has no end.
    """
    rows = StateInterval.objects.filter(service=service).overlapping(started_at, at)
    states = list(rows.select_related("incident", "window").order_by("-started_at"))
    for row in states:
        if row.ended_at and row.ended_at > at and row.state != State.MAINTENANCE:
            row.ended_at = None
    return states
