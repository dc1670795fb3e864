"""Planted outages of services, and hosts that fail every job.

They depend only on seed and origin.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from apps.demo.simulation.world import HOSTS, NODES, OUTAGES, RACKS, SAMWEB, random_of

# There is one outage in each window.
WINDOW_SECONDS = 8 * 3600
MAX_OUTAGE_SECONDS = 3 * 3600
# There is one failing host in each window of this length.
BAD_HOST_SECONDS = 12 * 3600


@dataclass(frozen=True, slots=True)
class SimulatedOutage:
    """An outage of a service from `started` to `ended`, in seconds since the epoch.

    `rack` is set for lost worker nodes. A minor outage slows the service down but fails no job.
    """

    service: str
    started: int
    ended: int
    minor: bool = False
    rack: int | None = None

    @property
    def summary(self) -> str:
        """The summary of its alert."""
        if self.minor:
            return f"{self.service} is slow"
        summary = OUTAGES[self.service].summary
        if self.rack is None:
            return summary
        return f"rack {self.rack + 1}: {summary}"


@dataclass(frozen=True, slots=True)
class SimulatedBadHost:
    """A host that fails every job within a minute, and therefore attracts more jobs."""

    host: str
    started: int
    ended: int


@dataclass(frozen=True)
class SimulatedTrouble:
    """All planted trouble of a simulation that was first started at `origin`.

    One outage is planted at the origin and a loss of nodes half a day before, so that a new demo
    shows both.
    """

    seed: int
    origin: int

    def outages(self, since: float, until: float) -> Iterator[SimulatedOutage]:
        """Yield the outages that overlap [since, until), ordered by start."""
        first = int((since - self.origin - MAX_OUTAGE_SECONDS) // WINDOW_SECONDS)
        for window in range(first, int((until - self.origin) // WINDOW_SECONDS) + 2):
            for outage in _outages_of(self.seed, self.origin, window):
                if outage.ended > since and outage.started < until:
                    yield outage

    def outage_at(self, service: str, moment: float) -> SimulatedOutage | None:
        """Return the outage that fails jobs needing `service` at that moment."""
        for outage in self.outages(moment, moment + 1):
            if outage.service == service and not outage.minor:
                return outage
        return None

    def rack_lost(self, rack: int, since: float, until: float) -> SimulatedOutage | None:
        """Return the loss of a rack that starts in [since, until)."""
        return next(
            (
                outage
                for outage in self.outages(since, until)
                if outage.rack == rack and outage.started >= since
            ),
            None,
        )

    def bad_host_at(self, moment: float) -> SimulatedBadHost | None:
        """Return the host that fails every job at that moment."""
        bad = _bad_host_of(self.seed, self.origin, int((moment - self.origin) // BAD_HOST_SECONDS))
        return bad if bad.started <= moment < bad.ended else None


@lru_cache(maxsize=200)
def _outages_of(seed: int, origin: int, window: int) -> tuple[SimulatedOutage, ...]:
    if window == 0:
        return (
            SimulatedOutage(SAMWEB, origin - 41 * 60, origin + 35 * 60),
            SimulatedOutage("dcache", origin - 25 * 60, origin + 90 * 60, minor=True),
        )
    random = random_of(seed, "outages", window)
    start = (
        origin
        + window * WINDOW_SECONDS
        + random.randrange(1800, WINDOW_SECONDS - MAX_OUTAGE_SECONDS - 1800)
    )
    minutes = min(MAX_OUTAGE_SECONDS / 60, 12 + random.lognormvariate(2.9, 0.6))
    weights = [outage_kind.weight for outage_kind in OUTAGES.values()]
    if window == -2:
        service = NODES
    else:
        service = random.choices(list(OUTAGES), weights)[0]
    rack = random.randrange(RACKS) if service == NODES else None
    minor = random.random() < 0.2 and rack is None
    return (SimulatedOutage(service, start, start + int(minutes * 60), minor, rack),)


@lru_cache(maxsize=200)
def _bad_host_of(seed: int, origin: int, window: int) -> SimulatedBadHost:
    random = random_of(seed, "hosts", window)
    start = origin + window * BAD_HOST_SECONDS + random.randrange(BAD_HOST_SECONDS - 3 * 3600)
    length = random.randrange(3600, 3 * 3600)
    # A new demo has just had a failing host.
    if window == -1:
        start = origin - length
    return SimulatedBadHost(random.choice(HOSTS), start, start + length)
