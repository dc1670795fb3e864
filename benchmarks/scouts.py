"""What scouts save, and how often they err: `python -m benchmarks.scouts [--arrays N] [--broken N]`.

Runs stages with planted truth by the portal's own rules: how many scouts a stage has, and what
their ends show (`apps.submission.domain.scouts`). 10,000 sound stages (N) of 50 to 5,000 jobs fail
at their usual rate, of which the portal knows what earlier jobs showed; one in ten has none. 1,000
stages (N) are broken from the start, and fail with nine of ten jobs or more. Each runs on 200
slots, and a verdict takes two minutes. Prints a table, and one JSON object last, in which each bar
has its figure beside it: `false_stops` (of 10,000 sound stages), `saved` (share of the core-hours
that the broken ones would have used), `first_result_later` (mean delay of the first completed job
of sound stages, as a share of the time without scouts). Without a bar: how much later sound stages
end, and the broken ones that were not stopped. Needs no database.

`memory` compares four ways to ask for memory, on the same planted peaks of jobs: as requested, what
the portal sets after its scouts, the 95th percentile of the scouts without a margin, and an oracle
that knows each job. Each has its unused GB-hours, as a share of what the request asks for, and the
share of jobs killed at the limit.
"""

import argparse
import heapq
import json
import random
import time
from dataclasses import dataclass

from benchmarks.database import set_up_without_database

SLOTS = 200
VERDICT_SECONDS = 120
FEWEST_JOBS, MOST_JOBS = 50, 5_000
#: The portal looks each 15 s, so at several ends at once.
ENDS_AT_ONCE = 20
BARS = {
    "false_stops": "at most 10",
    "saved": "at least 0.9",
    "first_result_later": "at most 0.05",
}


@dataclass(frozen=True)
class Stage:
    """Planted truth: the seconds that each job runs, and whether it fails; what is known before."""

    seconds: list[float]
    fails: list[bool]
    attempts: int
    completed: int


@dataclass(frozen=True)
class Run:
    """How a stage ran: times in seconds from its start, core-seconds of one core a job."""

    used: float
    ended_at: float
    first_result_at: float | None
    was_stopped: bool


def plant(chance: random.Random, *, is_broken: bool) -> Stage:
    jobs = round(FEWEST_JOBS * (MOST_JOBS / FEWEST_JOBS) ** chance.random())
    usual = min(0.2, chance.expovariate(1 / 0.04))
    attempts = 0 if chance.random() < 0.1 else chance.randrange(50, 20_000)
    completed = sum(chance.random() >= usual for _ in range(attempts))
    rate = chance.uniform(0.9, 1) if is_broken else usual
    mean = chance.uniform(600, 36_000)
    seconds = []
    fails = []
    for _ in range(jobs):
        fails.append(chance.random() < rate)
        length = mean * chance.lognormvariate(0, 0.3)
        seconds.append(length * chance.uniform(0.02, 1) if fails[-1] else length)
    return Stage(seconds, fails, attempts, completed)


def run_at_once(stage: Stage) -> Run:
    """Run a stage as without scouts."""
    slots = [0.0] * SLOTS
    ends = []
    for seconds in stage.seconds:
        end = heapq.heappop(slots) + seconds
        ends.append(end)
        heapq.heappush(slots, end)
    return Run(sum(stage.seconds), max(ends), _first_result(stage, ends), was_stopped=False)


def run_with_scouts(stage: Stage) -> Run:
    """Run a stage as the portal does."""
    from apps.submission.domain.arrays.scouts import scouts_of_stage, usual_rate
    from apps.submission.domain.scouts.ratio_test import RatioFinding, RatioTest
    from apps.submission.domain.scouts.watch import NEWEST

    jobs = len(stage.seconds)
    usual = usual_rate(attempts=stage.attempts, completed=stage.completed)
    test = RatioTest(usual=usual, jobs=jobs, false_stop=0.001, missed=0.05)
    allowed = scouts_of_stage(jobs, 10) or jobs
    is_scouting = allowed < jobs
    running: list[tuple[float, int]] = []
    ends: list[float] = []
    failures: list[bool | None] = []
    last = -1
    now = 0.0
    unseen = 0
    while True:
        while len(ends) < min(allowed, jobs) and len(running) < SLOTS:
            end = now + stage.seconds[len(ends)]
            heapq.heappush(running, (end, len(ends)))
            ends.append(end)
            failures.append(None)
        if not running:
            break
        now, job = heapq.heappop(running)
        failures[job] = stage.fails[job]
        last = max(last, job)
        unseen += 1
        if not is_scouting and unseen < ENDS_AT_ONCE:
            continue
        unseen = 0
        finding = test.find(failures[max(0, last + 1 - NEWEST) : last + 1])
        if finding is RatioFinding.BROKEN:
            used = sum(stage.seconds[: len(ends)])
            return Run(used, max(ends), _first_result(stage, ends), was_stopped=True)
        if is_scouting and finding is RatioFinding.SOUND:
            is_scouting = False
            allowed = jobs
            now += VERDICT_SECONDS
        elif is_scouting and not running:
            allowed = min(jobs, 2 * allowed)
            now += VERDICT_SECONDS
    return Run(sum(stage.seconds), max(ends), _first_result(stage, ends), was_stopped=False)


def _first_result(stage: Stage, ends: list[float]) -> float | None:
    completed = [end for end, fails in zip(ends, stage.fails, strict=False) if not fails]
    return min(completed, default=None)


@dataclass
class MemoryUse:
    """Sums of one way to ask for memory: GB-hours that no job used, and jobs that were killed."""

    unused: float = 0.0
    killed: int = 0

    def add_job(self, *, given: float, peak: float, gb_hours: float) -> None:
        """Count a job; `gb_hours` is what one byte of memory for its wall time amounts to."""
        self.unused += max(0.0, given - peak) * gb_hours
        self.killed += peak > given


def compare_memory(chance: random.Random, stages: int) -> dict[str, dict[str, float]]:
    """Run sound stages whose requests ask for 1.1 to 6 times the median peak of their jobs."""
    from apps.submission.domain.arrays.scout_resources import ScoutUse, fit_memory, percentile_95
    from apps.submission.domain.arrays.scouts import scouts_of_stage

    ways = {
        "as_requested": MemoryUse(),
        "scouts": MemoryUse(),
        "fixed_95th_percentile": MemoryUse(),
        "oracle": MemoryUse(),
    }
    all_jobs = 0
    all_asked = 0.0
    for _ in range(stages):
        jobs = round(FEWEST_JOBS * (MOST_JOBS / FEWEST_JOBS) ** chance.random())
        median = chance.uniform(0.5e9, 8e9)
        spread = chance.uniform(0.02, 0.3)
        asked = round(median * chance.uniform(1.1, 6))
        hours = chance.uniform(600, 36_000) / 3600
        peaks = []
        for _ in range(jobs):
            peaks.append(round(median * chance.lognormvariate(0, spread)))

        scouts = scouts_of_stage(jobs, 10)
        # The others start when half of the scouts have completed. One killed keeps the limit.
        first_peaks = peaks[: max(5, scouts // 2)]
        completed = []
        for peak in first_peaks:
            if peak <= asked:
                completed.append(peak)
        use = ScoutUse(memory_bytes=completed, hit_memory=len(completed) < len(first_peaks))
        fitted = fit_memory(use, requested=asked, bound=2 * asked)
        percentile = percentile_95(completed) if completed else asked
        for job, peak in enumerate(peaks):
            is_scout = job < scouts
            gb_hours = hours / 1e9
            all_jobs += 1
            all_asked += asked * gb_hours
            memory_by_way = {
                "as_requested": asked,
                "scouts": asked if is_scout else fitted,
                "fixed_95th_percentile": asked if is_scout else percentile,
                "oracle": peak,
            }
            for name, way in ways.items():
                way.add_job(given=memory_by_way[name], peak=peak, gb_hours=gb_hours)

    compared = {}
    for name, way in ways.items():
        compared[name] = {
            "unused": round(way.unused / all_asked, 4),
            "killed": round(way.killed / all_jobs, 5),
        }
    return compared


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--arrays", type=int, default=10_000)
    parser.add_argument("--broken", type=int, default=1_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    set_up_without_database()
    began = time.process_time()
    chance = random.Random(options.seed)
    stopped = 0
    first_later = 0.0
    end_later = 0.0
    for _ in range(options.arrays):
        stage = plant(chance, is_broken=False)
        without = run_at_once(stage)
        scouted = run_with_scouts(stage)
        stopped += scouted.was_stopped
        if without.first_result_at and scouted.first_result_at:
            first_later += scouted.first_result_at / without.first_result_at - 1
        if not scouted.was_stopped:
            end_later += scouted.ended_at / without.ended_at - 1

    used = 0.0
    whole = 0.0
    missed = 0
    for _ in range(options.broken):
        stage = plant(chance, is_broken=True)
        scouted = run_with_scouts(stage)
        used += scouted.used
        whole += sum(stage.seconds)
        missed += not scouted.was_stopped

    measured = {
        "false_stops": 10_000 * stopped / options.arrays,
        "saved": round(1 - used / whole, 4),
        "first_result_later": round(first_later / options.arrays, 4),
    }
    print(f"{options.arrays:,} sound stages: {stopped} stopped; their ends are ", end="")
    print(f"{100 * end_later / options.arrays:.1f} % later than without scouts")
    print(f"{options.broken:,} broken stages: {missed} not stopped; {used / whole:.1%} used")
    bars: dict[str, object] = {}
    for name, bar in BARS.items():
        bars[name] = {"measured": measured[name], "bar": bar}
    memory = compare_memory(chance, options.arrays // 10)
    for name, sums in memory.items():
        label = name.replace("_", " ")
        print(f"memory {label}: {sums['unused']:.1%} unused, {sums['killed']:.3%} of jobs killed")
    bars["memory"] = memory
    bars["cpu_seconds"] = round(time.process_time() - began)
    print(json.dumps(bars))


if __name__ == "__main__":
    main()
