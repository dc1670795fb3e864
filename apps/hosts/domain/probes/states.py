"""What probes measured: by site and probe, and on which hosts they are bad."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.db.models import Count, F, Max, Min, Q, QuerySet, Window
from django.db.models.functions import Coalesce, RowNumber

from apps.hosts.domain.known_hosts import short_name
from apps.hosts.models import MeasuredState, Probe
from apps.statusboard.models import StateInterval

#: Hosts of a bad probe that are listed with it.
MOST_HOSTS = 20


@dataclass(frozen=True, slots=True)
class BadProbe:
    """A probe that is bad on `hosts` hosts, the first since `since`.

    `states` are those of at most `MOST_HOSTS` hosts, that became bad last, newest first.
    """

    probe: Probe
    hosts: int
    since: datetime
    measured_at: datetime
    states: Sequence[MeasuredState]

    @property
    def newest(self) -> MeasuredState:
        return self.states[0]

    @property
    def not_listed(self) -> int:
        return self.hosts - len(self.states)


@dataclass(frozen=True, slots=True)
class MatrixCell:
    """On how many hosts of a site a probe was good, and the times of the results that count."""

    probe: str
    good: int
    hosts: int
    oldest_at: datetime
    newest_at: datetime

    @property
    def bad(self) -> int:
        return self.hosts - self.good


@dataclass(frozen=True, slots=True)
class MatrixColumn:
    """A probe, and the reported state of its service; "" if it has none or none is known."""

    probe: Probe
    reported: str


@dataclass(frozen=True, slots=True)
class MatrixRow:
    """A site with a cell for each column, None where nothing was measured."""

    site: str
    cells: Sequence[MatrixCell | None]


@dataclass(frozen=True, slots=True)
class Matrix:
    """Measured states by site and probe. A cluster without a site is a row of its own."""

    columns: Sequence[MatrixColumn]
    rows: Sequence[MatrixRow]


def counts_since(at: datetime) -> datetime:
    """Return after which time a result still counts: an older one says nothing about now."""
    return at - max(timedelta(hours=2 * settings.HOST_PROBE_HOURS), timedelta(hours=1))


def current_states(at: datetime) -> QuerySet[MeasuredState]:
    """Return the measured states that still count. All users may see them."""
    states = MeasuredState.objects.filter(measured_at__gt=counts_since(at))
    return states.select_related("cluster", "probe__service")


def bad_states(at: datetime) -> QuerySet[MeasuredState]:
    """Return the states of hosts on which a probe is bad, those that became bad last first."""
    return current_states(at).filter(good=False).order_by("-since", "cluster", "host", "probe")


def bad_probes(at: datetime) -> list[BadProbe]:
    """Return the probes that are bad on any host, those on most hosts first, in one query."""
    place = Window(RowNumber(), partition_by="probe", order_by=["-since", "cluster", "host"])
    newest = bad_states(at).annotate(
        place=place,
        hosts=Window(Count("pk"), partition_by="probe"),
        first_since=Window(Min("since"), partition_by="probe"),
        last_measured_at=Window(Max("measured_at"), partition_by="probe"),
    )
    states: dict[int, list[Any]] = {}
    for state in newest.filter(place__lte=MOST_HOSTS):
        states.setdefault(state.probe_id, []).append(state)

    probes = []
    for of_probe in states.values():
        first = of_probe[0]
        probe = BadProbe(
            probe=first.probe,
            hosts=first.hosts,
            since=first.first_since,
            measured_at=first.last_measured_at,
            states=of_probe,
        )
        probes.append(probe)
    return sorted(probes, key=lambda bad: (-bad.hosts, bad.probe.name))


def measured_states(at: datetime, *, site: str = "", probe: str = "") -> QuerySet[MeasuredState]:
    """Return the states of a site, and of a probe, bad ones first.

    A cluster without a site is a site of its own name, as in the matrix.
    """
    states = current_states(at)
    if site:
        is_lone_cluster = Q(cluster__site=None, cluster__name=site)
        states = states.filter(Q(cluster__site__name=site) | is_lone_cluster)
    if probe:
        states = states.filter(probe__name=probe)
    return states.order_by("good", "cluster__name", "host", "probe__name")


def states_of_host(host: str, at: datetime) -> QuerySet[MeasuredState]:
    """Return the states of a host, given with or without its domain."""
    return current_states(at).filter(host=short_name(host))


def measured_matrix(at: datetime) -> Matrix:
    """Return the measured states by site and probe, in three queries."""
    counts = (
        current_states(at)
        .order_by()
        .annotate(site_name=Coalesce(F("cluster__site__name"), F("cluster__name")))
        .values("site_name", "probe_id", "probe__name")
        .annotate(
            good_hosts=Count("pk", filter=Q(good=True)),
            all_hosts=Count("pk"),
            oldest_at=Min("measured_at"),
            newest_at=Max("measured_at"),
        )
    )
    cells: dict[str, dict[int, MatrixCell]] = {}
    measured_probes = set()
    for counted in counts:
        measured_probes.add(counted["probe_id"])
        cells.setdefault(counted["site_name"], {})[counted["probe_id"]] = MatrixCell(
            probe=counted["probe__name"],
            good=counted["good_hosts"],
            hosts=counted["all_hosts"],
            oldest_at=counted["oldest_at"],
            newest_at=counted["newest_at"],
        )

    probes = list(Probe.objects.filter(pk__in=measured_probes).select_related("service"))
    reported = _reported_states(probes, at)
    columns = []
    for probe in probes:
        columns.append(MatrixColumn(probe, reported.get(probe.service_id or 0, "")))
    rows = []
    for site in sorted(cells):
        rows.append(MatrixRow(site, [cells[site].get(probe.pk) for probe in probes]))
    return Matrix(columns, rows)


def _reported_states(probes: Sequence[Probe], at: datetime) -> Mapping[int, str]:
    """Return the current states of the probes' services that monitoring or people reported."""
    services = {probe.service_id for probe in probes if probe.service_id}
    intervals = StateInterval.objects.filter(service__in=services).current(at)
    return dict(intervals.values_list("service", "state"))
