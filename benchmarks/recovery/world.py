"""A month of planted truth: jobs, outages, bad hosts, bad releases, and how each attempt ends.

Chance is drawn by job and number of the attempt, so that every policy meets the same month.
"""

from bisect import bisect_right
from collections import defaultdict
from dataclasses import dataclass, field
from enum import StrEnum
from random import Random

import numpy as np

MINUTE = 60.0
HOUR = 3600.0
DAY = 86_400.0
DAYS = 30
#: Jobs are submitted in the first days, so that their retries fit into the month.
SUBMIT_DAYS = 26
EXPERIMENTS = 12
SITES = 4
HOSTS_OF_SITE = 100
OUTPUT_SERVICES = 4
CORES = 4
QUEUE_WAIT = 10 * MINUTE
#: What every stage asks for, and the most that the cluster gives.
ASKED_MEMORY = 2_000_000_000
MOST_MEMORY = 4 * ASKED_MEMORY
ASKED_SECONDS = 8 * 3600
MOST_SECONDS = 3 * ASKED_SECONDS

SHORT_OUTAGES = 80
LONG_OUTAGES = 8
#: Outages that monitoring sees, and how long after their start and end.
SEEN_SHARE = 0.9
SEEN_AFTER = 5 * MINUTE
BLACK_HOLES = 10
#: A black hole fails its jobs at once, so it takes many of those that start at its site.
BLACK_HOLE_SHARE = 0.25
BAD_RELEASES = 8
MEMORY_SHARE = 0.015
SLOW_SHARE = 0.015
#: An input that was slow is still slow at the next attempt.
STILL_SLOW_SHARE = 0.5
CORRUPT_INPUT_SHARE = 0.003
#: Of corrupt inputs, so many are intact at another site.
INTACT_ELSEWHERE_SHARE = 0.5
MISSING_INPUT_SHARE = 0.004
MISSING_FOREVER_SHARE = 0.25
CORRUPT_OUTPUT_SHARE = 0.002
CRASH_SHARE = 0.02
_DRAWS = 6


class Cause(StrEnum):
    """Why an attempt failed, in truth."""

    INPUT_OUTAGE = "outage of an input service"
    OUTPUT_OUTAGE = "outage of an output service"
    BLACK_HOLE = "black-hole host"
    MISSING_INPUT = "missing input"
    CORRUPT_INPUT = "corrupt input"
    CORRUPT_OUTPUT = "corrupt output"
    MEMORY = "memory"
    SLOW_INPUT = "slow input"
    BAD_RELEASE = "bad release"
    CRASH = "random crash"


#: When an attempt ends, why it fails (None: it completes), and the service that fails it.
_Fate = tuple[float, Cause | None, str]
#: Problems of code: a person debugs them.
CODE = frozenset({Cause.BAD_RELEASE, Cause.CRASH})


class HostFault(StrEnum):
    """What is wrong with a black-hole host."""

    NO_CVMFS = "CVMFS"
    FULL_DISK = "full disk"
    CRASHES = "node failure"


@dataclass(frozen=True, slots=True)
class Asked:
    """What an attempt asks for. `site` of None is that of the job."""

    memory_bytes: int = ASKED_MEMORY
    seconds: int = ASKED_SECONDS
    avoided_hosts: tuple[str, ...] = ()
    site: int | None = None


UNCHANGED = Asked()


@dataclass(frozen=True, slots=True)
class Attempt:
    """An attempt of a job and how it ended; `cause` of None is success. Seconds since the start."""

    job: int
    number: int
    asked: Asked
    start: float
    end: float
    cause: Cause | None
    host: str = ""
    service: str = ""
    fault: HostFault | None = None

    @property
    def core_seconds(self) -> int:
        return round((self.end - self.start) * CORES)


@dataclass
class Outages:
    """Outages of one service, in order, and those that monitoring sees."""

    starts: list[float] = field(default_factory=list)
    ends: list[float] = field(default_factory=list)
    seen: list[bool] = field(default_factory=list)

    def end_of(self, at: float) -> float | None:
        """Return when the outage at this time ends; None if there is none."""
        place = bisect_right(self.starts, at) - 1
        if place >= 0 and at < self.ends[place]:
            return self.ends[place]
        return None

    def seen_until(self, at: float) -> float | None:
        """Return until when monitoring shows an outage; None if it shows none now."""
        place = bisect_right(self.starts, at - SEEN_AFTER) - 1
        if place >= 0 and self.seen[place] and at < self.ends[place] + SEEN_AFTER:
            return self.ends[place] + SEEN_AFTER
        return None


@dataclass(frozen=True, slots=True)
class BlackHole:
    start: float
    end: float
    host: str
    fault: HostFault


class World:
    """All that is true about a month. Fewer jobs have the same outages and shares of failures."""

    def __init__(self, *, seed: int, jobs: int) -> None:
        self.seed = seed
        self.jobs = jobs
        self.numbers = np.random.default_rng(seed)
        self._make_jobs()
        self._make_outages()
        self._make_black_holes()
        self._make_releases()

    def _make_jobs(self) -> None:
        draw = self.numbers
        count = self.jobs
        self.submitted = np.sort(draw.random(count) * SUBMIT_DAYS * DAY).tolist()
        self.experiment = draw.integers(EXPERIMENTS, size=count).tolist()
        self.site = draw.integers(SITES, size=count).tolist()
        duration = draw.lognormal(np.log(2.5 * HOUR), 0.5, count)
        self.duration = np.clip(duration, 0.2 * HOUR, 0.7 * ASKED_SECONDS).tolist()
        # A tail: of the jobs that need more than asked for, one in five needs 1.5 times as much.
        needs_more = draw.random(count) < MEMORY_SHARE
        need = np.where(needs_more, draw.random(count) ** -0.25, 0.7)
        self.memory = (need * ASKED_MEMORY).tolist()
        slow = draw.random(count) < SLOW_SHARE
        self.slow_seconds = np.where(
            slow, ASKED_SECONDS * (1 - draw.random(count)) ** (-1 / 3), 0.0
        ).tolist()
        self.input_is_corrupt = (draw.random(count) < CORRUPT_INPUT_SHARE).tolist()
        self.is_intact_elsewhere = (draw.random(count) < INTACT_ELSEWHERE_SHARE).tolist()
        missing = draw.random(count) < MISSING_INPUT_SHARE
        forever = draw.random(count) < MISSING_FOREVER_SHARE
        arrives = draw.exponential(6 * HOUR, count) + np.array(self.submitted)
        arrives = np.where(forever, np.inf, arrives)
        self.input_arrives = np.where(missing, arrives, 0.0).tolist()
        self.first_draws = draw.random((count, _DRAWS))

    def _make_outages(self) -> None:
        draw = self.numbers
        names = [f"storage-{number}" for number in range(SITES)]
        names += [f"output-{number}" for number in range(OUTPUT_SERVICES)]
        lengths = [max(5 * MINUTE, draw.exponential(20 * MINUTE)) for _ in range(SHORT_OUTAGES)]
        lengths += [draw.uniform(6 * HOUR, 24 * HOUR) for _ in range(LONG_OUTAGES)]
        planned = defaultdict(list)
        for length in lengths:
            start = draw.uniform(0, DAYS * DAY)
            planned[names[draw.integers(len(names))]].append((start, start + length))
        self.outages: dict[str, Outages] = defaultdict(Outages)
        for name in names:
            outages = self.outages[name]
            for start, end in sorted(planned[name]):
                if outages.ends and start <= outages.ends[-1] + 2 * SEEN_AFTER:
                    continue
                outages.starts.append(start)
                outages.ends.append(end)
                outages.seen.append(draw.random() < SEEN_SHARE)

    def _make_black_holes(self) -> None:
        draw = self.numbers
        self.black_holes: list[list[BlackHole]] = [[] for _ in range(SITES)]
        faults = list(HostFault)
        for number in range(BLACK_HOLES):
            site = int(draw.integers(SITES))
            start = draw.uniform(0, SUBMIT_DAYS * DAY)
            end = start + draw.uniform(6 * HOUR, 24 * HOUR)
            host = f"site{site}-node{draw.integers(HOSTS_OF_SITE):02d}"
            fault = faults[number % len(faults)]
            self.black_holes[site].append(BlackHole(start, end, host, fault))

    def _make_releases(self) -> None:
        draw = self.numbers
        self.bad_releases: list[list[tuple[float, float]]] = [[] for _ in range(EXPERIMENTS)]
        for _ in range(BAD_RELEASES):
            start = draw.uniform(0, SUBMIT_DAYS * DAY)
            end = start + draw.uniform(8 * HOUR, 36 * HOUR)
            self.bad_releases[draw.integers(EXPERIMENTS)].append((start, end))

    def first_attempts(self) -> list[Attempt]:
        """Run every job once."""
        attempts = []
        for job, draws in enumerate(self.first_draws.tolist()):
            attempts.append(self._run(job, 1, self.submitted[job], UNCHANGED, draws))
        return attempts

    def run(self, job: int, number: int, submitted: float, asked: Asked) -> Attempt:
        """Run a later attempt of a job."""
        chance = Random((self.seed * self.jobs + job) * 64 + number)
        draws = [chance.random() for _ in range(_DRAWS)]
        return self._run(job, number, submitted, asked, draws)

    def _run(
        self, job: int, number: int, submitted: float, asked: Asked, draws: list[float]
    ) -> Attempt:
        start = submitted + QUEUE_WAIT
        site = self.site[job] if asked.site is None else asked.site
        host, fault = self._host(site, start, asked, draws)
        end, cause, service = self._fate(job, number, site, start, asked, fault, draws)
        if cause != Cause.BLACK_HOLE:
            fault = None
        return Attempt(job, number, asked, start, end, cause, host, service, fault)

    def _host(
        self, site: int, start: float, asked: Asked, draws: list[float]
    ) -> tuple[str, HostFault | None]:
        for hole in self.black_holes[site]:
            is_avoided = hole.host in asked.avoided_hosts
            if hole.start <= start < hole.end and draws[0] < BLACK_HOLE_SHARE and not is_avoided:
                return hole.host, hole.fault
        return f"site{site}-node{int(draws[1] * HOSTS_OF_SITE):02d}", None

    def _fate(
        self,
        job: int,
        number: int,
        site: int,
        start: float,
        asked: Asked,
        fault: HostFault | None,
        draws: list[float],
    ) -> _Fate:
        """Return when an attempt ends, why it fails, and the service that fails it."""
        if fault is not None:
            return start + 2 * MINUTE, Cause.BLACK_HOLE, ""
        fate = self._fate_at_start(job, site, start)
        if fate is None:
            fate = self._fate_of_payload(job, site, start, asked, draws)
        if fate is not None:
            return fate
        duration = self.duration[job]
        if number == 1 or draws[4] < STILL_SLOW_SHARE:
            duration = max(duration, self.slow_seconds[job])
        if duration > asked.seconds:
            return start + asked.seconds, Cause.SLOW_INPUT, ""
        return self._fate_of_output(job, start + duration, draws)

    def _fate_at_start(self, job: int, site: int, start: float) -> _Fate | None:
        """Return how an attempt fails before it processes events, if it does."""
        storage = f"storage-{site}"
        if self.outages[storage].end_of(start + 5 * MINUTE):
            return start + 5 * MINUTE, Cause.INPUT_OUTAGE, storage
        if start < self.input_arrives[job]:
            return start + 2 * MINUTE, Cause.MISSING_INPUT, ""
        for first, last in self.bad_releases[self.experiment[job]]:
            if first <= self.submitted[job] < last:
                return start + 10 * MINUTE, Cause.BAD_RELEASE, ""
        return None

    def _fate_of_payload(
        self, job: int, site: int, start: float, asked: Asked, draws: list[float]
    ) -> _Fate | None:
        """Return how an attempt fails while it processes events, if it does."""
        duration = self.duration[job]
        is_elsewhere = site != self.site[job] and self.is_intact_elsewhere[job]
        if self.input_is_corrupt[job] and not is_elsewhere:
            return start + 0.3 * duration, Cause.CORRUPT_INPUT, ""
        # The need of memory differs a little between attempts.
        if self.memory[job] * (0.97 + 0.06 * draws[2]) > asked.memory_bytes:
            return start + 0.6 * duration, Cause.MEMORY, ""
        if draws[3] < CRASH_SHARE:
            # What decides that it crashes also decides when: both are one draw.
            return start + draws[3] / CRASH_SHARE * duration, Cause.CRASH, ""
        return None

    def _fate_of_output(self, job: int, end: float, draws: list[float]) -> _Fate:
        """Return how an attempt ends that has written its output."""
        output = f"output-{self.experiment[job] % OUTPUT_SERVICES}"
        if self.outages[output].end_of(end):
            return end, Cause.OUTPUT_OUTAGE, output
        if draws[5] < CORRUPT_OUTPUT_SHARE:
            return end, Cause.CORRUPT_OUTPUT, ""
        return end, None, ""
