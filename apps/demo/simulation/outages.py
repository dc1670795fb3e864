"""Planted trouble: when services are out and which hosts fail every job. A function of seed and origin alone."""

from collections.abc import Iterator
from dataclasses import dataclass

from apps.demo.simulation.seeded import random_of
from apps.demo.simulation.world import CONDITIONS, CVMFS, DCACHE, HOSTS, NODES, RACKS, SAMWEB

WINDOW_SECONDS = 8 * 3600  # one outage in each
MAX_OUTAGE_SECONDS = 3 * 3600
BAD_HOST_SECONDS = 12 * 3600  # one failing host in each

_WEIGHTS = {SAMWEB: 4, DCACHE: 4, CVMFS: 2, CONDITIONS: 3, NODES: 2}
_SUMMARIES = {
    SAMWEB: "samweb answers 503 to most requests",
    DCACHE: "dCache doors do not answer; transfers time out",
    CVMFS: "CVMFS stratum 1 unreachable; clients fail to mount",
    CONDITIONS: "Conditions database proxies do not answer",
    NODES: "worker nodes lost power",
}


@dataclass(frozen=True, slots=True)
class Outage:
    """A service out from `started` to `ended`, in seconds of the epoch. `rack` is set for lost worker nodes.

    A minor one slows the service down and fails no job.
    """

    service: str
    started: int
    ended: int
    minor: bool = False
    rack: int | None = None

    def covers(self, moment: float) -> bool:
        """Tell whether the service is out at that moment."""
        return self.started <= moment < self.ended

    @property
    def summary(self) -> str:
        """Say what is seen of it, in a line."""
        if self.rack is not None:
            return f"rack {self.rack + 1}: {_SUMMARIES[NODES]}"
        return f"{self.service} is slow" if self.minor else _SUMMARIES[self.service]


@dataclass(frozen=True, slots=True)
class BadHost:
    """A host that fails every job within a minute, and so draws more of them."""

    host: str
    started: int
    ended: int


class Trouble:
    """All planted trouble of a simulation whose first start was at `origin`.

    One outage is planted right at the origin, and a loss of nodes half a day before, so that a fresh demo shows both.
    """

    def __init__(self, seed: int, origin: int) -> None:
        self.seed = seed
        self.origin = origin
        self._outages: dict[int, tuple[Outage, ...]] = {}
        self._bad_hosts: dict[int, BadHost] = {}

    def outages(self, since: float, until: float) -> Iterator[Outage]:
        """Yield the outages that touch [since, until), in the order of their starts."""
        first = int((since - self.origin - MAX_OUTAGE_SECONDS) // WINDOW_SECONDS)
        for window in range(first, int((until - self.origin) // WINDOW_SECONDS) + 2):
            for outage in self._outages_of(window):
                if outage.ended > since and outage.started < until:
                    yield outage

    def outage_at(self, service: str, moment: float) -> Outage | None:
        """Return the outage that fails jobs which need `service` at that moment."""
        for outage in self.outages(moment, moment + 1):
            if outage.service == service and not outage.minor:
                return outage
        return None

    def rack_lost(self, rack: int, since: float, until: float) -> Outage | None:
        """Return the loss of a rack that begins in [since, until)."""
        for outage in self.outages(since, until):
            if outage.rack == rack and outage.started >= since:
                return outage
        return None

    def bad_host_at(self, moment: float) -> BadHost | None:
        """Return the host that fails every job at that moment."""
        bad = self._bad_host_of(int((moment - self.origin) // BAD_HOST_SECONDS))
        return bad if bad.started <= moment < bad.ended else None

    def _outages_of(self, window: int) -> tuple[Outage, ...]:
        if window not in self._outages:
            self._outages[window] = tuple(self._plan_outages(window))
            self._outages.pop(window - 100, None)
        return self._outages[window]

    def _plan_outages(self, window: int) -> Iterator[Outage]:
        if window == 0:
            yield Outage(SAMWEB, self.origin - 41 * 60, self.origin + 35 * 60)
            yield Outage(DCACHE, self.origin - 25 * 60, self.origin + 90 * 60, minor=True)
            return
        random = random_of(self.seed, "outages", window)
        start = (
            self.origin + window * WINDOW_SECONDS + random.randrange(1800, WINDOW_SECONDS - MAX_OUTAGE_SECONDS - 1800)
        )
        minutes = min(MAX_OUTAGE_SECONDS / 60, 12 + random.lognormvariate(2.9, 0.6))
        service = NODES if window == -2 else random.choices(list(_WEIGHTS), list(_WEIGHTS.values()))[0]
        rack = random.randrange(RACKS) if service == NODES else None
        yield Outage(service, start, start + int(minutes * 60), minor=random.random() < 0.2 and rack is None, rack=rack)

    def _bad_host_of(self, window: int) -> BadHost:
        if window not in self._bad_hosts:
            random = random_of(self.seed, "hosts", window)
            start = self.origin + window * BAD_HOST_SECONDS + random.randrange(BAD_HOST_SECONDS - 3 * 3600)
            length = random.randrange(3600, 3 * 3600)
            if window == -1:  # a fresh demo has just seen one
                start = self.origin - length
            self._bad_hosts[window] = BadHost(random.choice(HOSTS), start, start + length)
            self._bad_hosts.pop(window - 100, None)
        return self._bad_hosts[window]
