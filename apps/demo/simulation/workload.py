"""The jobs of the simulated cluster: who submits what, where it runs, how it ends.

An hour depends only on the seed and its number, so that a restart can resume it.
"""

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from random import Random

from apps.demo.simulation.causes import DONE, CauseKind, SimulatedCause
from apps.demo.simulation.outages import SimulatedTrouble
from apps.demo.simulation.world import (
    HOSTS,
    HOUR,
    SAMWEB,
    STAGES,
    WorldCampaign,
    WorldPhase,
    rack_of,
    random_of,
)

# The longest time from submission to end.
LONGEST_SECONDS = 24 * HOUR
FIRST_ID = 8_400_000
# Share of the jobs whose retries do not outlast an outage.
_GIVES_UP = 0.3
# Share of all jobs that a failing host attracts, because it is free again at once.
_DRAWN = 0.12
# Seconds after which a failing host ends a job.
_QUICK_END = 40


@dataclass(frozen=True, slots=True)
class SimulatedAttempt:
    """One run of a job.

    Times are whole seconds since the epoch; `started` is None for a job that never ran. `marks` has
    the start of each phase that was reached.
    """

    raw_id: int
    job_id: str
    number: int
    started: int | None
    ended: int
    host: str
    cause: SimulatedCause
    marks: tuple[int, ...]
    cpu_share: float
    memory_share: float
    phases: tuple[WorldPhase, ...]

    @property
    def payload(self) -> int:
        """The index of the experiment's own program: the phase before the output is stored."""
        return len(self.phases) - 3


@dataclass(frozen=True, slots=True)
class SimulatedArray:
    """One sbatch: a script with an environment, and the attempts of its job or tasks."""

    spool_id: int
    submitted: int
    campaign: WorldCampaign
    tasks: int
    is_array: bool
    attempts: tuple[SimulatedAttempt, ...]
    name: str
    comment: str


@dataclass(frozen=True, kw_only=True)
class Runs:
    """How jobs run: `pace` times as fast as usual; `calm` jobs never fail."""

    seed: int
    trouble: SimulatedTrouble
    pace: float = 1
    calm: bool = False

    def attempts(
        self, random: Random, raw_id: int, job_id: str, queued: int, campaign: WorldCampaign
    ) -> Iterator[SimulatedAttempt]:
        """Yield a job's attempts; another one follows only if a node was lost."""
        for number in (1, 2, 3):
            attempt = self._attempt(random, raw_id, job_id, number, queued, campaign)
            yield attempt
            if attempt.cause.kind is not CauseKind.NODE_LOST:
                return
            queued = attempt.ended + 120 + int(random.expovariate(1 / 300))

    def _attempt(
        self,
        random: Random,
        raw_id: int,
        job_id: str,
        number: int,
        queued: int,
        campaign: WorldCampaign,
    ) -> SimulatedAttempt:
        if number == 1 and not campaign.request and not self.calm and random.random() < 0.01:
            cause = SimulatedCause(CauseKind.NEVER_STARTED, campaign.user)
            return SimulatedAttempt(raw_id, job_id, 1, None, queued, "", cause, (), 0.0, 0.0, ())
        started, host = self._place(random, queued, campaign)
        scaled = []
        for phase in STAGES[campaign.kind]:
            scaled.append(
                WorldPhase(
                    phase.name,
                    max(1, int(phase.seconds * random.lognormvariate(0, 0.35) / self.pace)),
                    phase.needs,
                )
            )
        phases = tuple(scaled)
        cause, marks, ended = self._run(random, campaign, host, started, phases)
        if random.random() < 0.1:
            share = random.uniform(0.55, 0.98)
        else:
            share = random.uniform(0.88, 0.98)
        if cause.kind is CauseKind.MEMORY:
            memory = 1.0
        else:
            memory = min(0.97, random.lognormvariate(-0.5, 0.15))
        return SimulatedAttempt(
            raw_id, job_id, number, started, ended, host, cause, tuple(marks), share, memory, phases
        )

    def _place(self, random: Random, queued: int, campaign: WorldCampaign) -> tuple[int, str]:
        """Choose when and where a job starts.

        Lost nodes are avoided; a host that fails everything is chosen often, unless the job avoids
        it.
        """
        bad = self.trouble.bad_host_at(queued)
        host = random.choice(HOSTS)
        is_drawn = bad is not None and random.random() < _DRAWN
        if bad is not None and is_drawn:
            host = bad.host
        if host.partition(".")[0] in campaign.avoided_hosts:
            others = [
                name for name in HOSTS if name.partition(".")[0] not in campaign.avoided_hosts
            ]
            host = random.choice(others)
        lost = next(
            (o for o in self.trouble.outages(queued, queued + 1) if o.rack == rack_of(host)), None
        )
        return (
            queued if lost is None or self.calm else lost.ended + random.randrange(60, 900)
        ), host

    def _run(
        self,
        random: Random,
        campaign: WorldCampaign,
        host: str,
        started: int,
        phases: tuple[WorldPhase, ...],
    ) -> tuple[SimulatedCause, list[int], int]:
        """Run the phases until one fails; return the cause, the starts, and the end."""
        if self.calm:
            *times, end = itertools.accumulate((phase.seconds for phase in phases), initial=started)
            return DONE, times, end
        bad = self.trouble.bad_host_at(started)
        if bad is not None and bad.host == host:
            return (
                SimulatedCause(CauseKind.HOST, host),
                [started],
                started + _QUICK_END - 2 + random.randrange(5),
            )
        planned = self._own_fault(random, campaign)
        marks = []
        now = started
        for index, phase in enumerate(phases):
            marks.append(now)
            cause, seconds = self._phase(random, campaign, index, phase, now, planned)
            lost = self.trouble.rack_lost(rack_of(host), now, now + seconds)
            if lost is not None and lost.started > started:
                cause = SimulatedCause(CauseKind.NODE_LOST, host, index, (lost.started, lost.ended))
                seconds = lost.started - now
            if now + seconds > started + campaign.limit_seconds:
                cause = SimulatedCause(CauseKind.TIME_LIMIT, campaign.release, index)
                seconds = started + campaign.limit_seconds - now
            now += seconds
            if cause is not DONE:
                return cause, marks, now
        return DONE, marks, now

    def _phase(
        self,
        random: Random,
        campaign: WorldCampaign,
        index: int,
        phase: WorldPhase,
        now: int,
        planned: CauseKind,
    ) -> tuple[SimulatedCause, int]:
        """Return the result of a phase, `DONE` or the cause of its failure, and its duration."""
        for service in phase.needs:
            outage = self.trouble.outage_at(service, now)
            if outage is not None and random.random() < _GIVES_UP:
                # The retries before it gives up.
                wait = random.randrange(150, 420)
                return SimulatedCause(
                    CauseKind.OUTAGE, service, index, (outage.started, outage.ended)
                ), wait
        if planned is CauseKind.TRANSIENT and index == len(STAGES[campaign.kind]) - 1:
            return SimulatedCause(CauseKind.TRANSIENT, SAMWEB, index), 240
        if index != len(STAGES[campaign.kind]) - 3 or planned in (
            CauseKind.NONE,
            CauseKind.TRANSIENT,
        ):
            return DONE, phase.seconds
        if planned is CauseKind.CONFIGURATION:
            return SimulatedCause(planned, campaign.config, index), 4
        if planned is CauseKind.TIME_LIMIT:
            return DONE, campaign.limit_seconds + phase.seconds
        if planned is CauseKind.CANCELLED:
            blame = campaign.user
        else:
            blame = campaign.release
        return SimulatedCause(planned, blame, index), int(
            phase.seconds * random.uniform(0.1, 0.95)
        ) + 1

    def _own_fault(self, random: Random, campaign: WorldCampaign) -> CauseKind:
        """Draw what would go wrong with a job of this campaign on healthy services and hosts."""
        draw = random.random()
        flaws = {"memory": CauseKind.MEMORY, "crash": CauseKind.CRASH, "slow": CauseKind.TIME_LIMIT}
        if draw < campaign.flaw_rate:
            return flaws[campaign.flaw]
        chances = {
            CauseKind.EXCEPTION: 0.005,
            CauseKind.TRANSIENT: 0.004,
            CauseKind.DATA: 0.0015,
            CauseKind.UNEXPLAINED: 0.002,
            CauseKind.CONFIGURATION: 0.0005 if campaign.request else 0.03,
            CauseKind.CANCELLED: 0.002 if campaign.request else 0.03,
        }
        draw -= campaign.flaw_rate
        for kind, chance in chances.items():
            if draw < chance:
                return kind
            draw -= chance
        return CauseKind.NONE


@dataclass(frozen=True, kw_only=True)
class Workload(Runs):
    """Submissions of a simulated cluster.

    `rate` returns the number of jobs submitted per day in an hour, given by its number. `campaigns`
    returns the active campaigns.
    """

    rate: Callable[[int], float]
    campaigns: Callable[[int], tuple[WorldCampaign, ...]]
    ids_per_hour: int
    first_hour: int

    def submissions(self, since: float) -> Iterator[SimulatedArray]:
        """Yield submissions from the hour of `since` on, ordered by time, without end."""
        for hour in itertools.count(max(int(since // HOUR), self.first_hour)):
            yield from self.hour(hour)

    def hour(self, hour: int) -> Iterator[SimulatedArray]:
        """Yield the submissions of one hour, ordered by time."""
        random = random_of(self.seed, "hour", hour)
        day_wave = 1 + 0.35 * math.sin((hour % 24 - 8) / 24 * 2 * math.pi)
        jobs_left = min(
            round(self.rate(hour) / 24 * day_wave * random.uniform(0.85, 1.15)),
            self.ids_per_hour - 64,
        )
        campaigns = self.campaigns(hour)
        weights = [campaign.weight / campaign.array for campaign in campaigns]
        chosen: list[tuple[WorldCampaign, int]] = []
        while jobs_left > 0:
            campaign = random.choices(campaigns, weights)[0]
            size = min(jobs_left, random.randint(max(1, campaign.array // 2), campaign.array))
            chosen.append((campaign, size))
            jobs_left -= size
        moments = sorted(random.randrange(hour * HOUR, (hour + 1) * HOUR) for _ in chosen)
        next_id = FIRST_ID + (hour - self.first_hour) * self.ids_per_hour
        for moment, (campaign, size) in zip(moments, chosen, strict=True):
            yield self._submission(
                random_of(self.seed, "job", next_id), next_id, moment, campaign, size
            )
            next_id += size

    def _submission(
        self, random: Random, spool_id: int, submitted: int, campaign: WorldCampaign, size: int
    ) -> SimulatedArray:
        is_array = size > 1
        attempts: list[SimulatedAttempt] = []
        for task in range(size):
            job_id = f"{spool_id}_{task}" if is_array else str(spool_id)
            queued = submitted + 5 + int(random.expovariate(1 / 400))
            attempts += self.attempts(
                random, raw_id_of(spool_id, task, size), job_id, queued, campaign
            )
        if campaign.request:
            comment = f"campaign={campaign.request};stage={campaign.stage}"
        else:
            comment = "analysis"
        return SimulatedArray(
            spool_id, submitted, campaign, size, is_array, tuple(attempts), campaign.name, comment
        )


def raw_id_of(spool_id: int, task: int, tasks: int) -> int:
    """Return the number of a task. In Slurm, the last task has the number of the array."""
    return spool_id if task == tasks - 1 else spool_id + task + 1
