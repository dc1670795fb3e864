"""Advance the simulated cluster to a moment.

Writes spool entries, logs, accounting records and the truth about failures. All state between two
runs is in the accounting store, committed together with the records it belongs to.
"""

import heapq
import json
import os
import shutil
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from apps.clusters.schedulers.base import CurrentJobs, CurrentState, JobRecord
from apps.clusters.schedulers.simulated import (
    add_records,
    mark_complete,
    open_accounting,
    store_current,
)
from apps.demo.simulation.causes import CauseKind
from apps.demo.simulation.logs import log_of
from apps.demo.simulation.outages import SimulatedTrouble
from apps.demo.simulation.probes import ProbeReport, log_of_probes, report_of
from apps.demo.simulation.records import record_of, truth_of
from apps.demo.simulation.scripts import script_of, spooled_environment, variables_of
from apps.demo.simulation.sent import Sent, SentJobs
from apps.demo.simulation.spool import SpoolWriter
from apps.demo.simulation.workload import (
    LONGEST_SECONDS,
    SimulatedArray,
    SimulatedAttempt,
    Workload,
)
from apps.demo.simulation.world import CAMPAIGNS, DAY, HOUR, WorldCampaign, random_of

# An entry written later than this after its submission gets the time of the submission.
_LATE_SECONDS = 1.0
# How much of the past one step simulates.
_STEP_SECONDS = HOUR


@dataclass(frozen=True, slots=True)
class Config:
    """Options of a simulation. Those that shape the jobs are kept from the first start.

    Jobs submitted by the portal run `pace` times as fast as others; with `calm`, none of them
    fails.
    """

    directory: Path
    spool: Path
    seed: int = 1
    days: float = 3
    jobs_per_day: float = 1000
    speed: float = 1
    min_job_age_seconds: int = 6 * HOUR
    keep_days: int = 7
    pace: float = 1
    calm: bool = False


class Simulator:
    """A simulated cluster on disk.

    `advance(now)` does everything that is due; `next_due()` returns when the next event is due.
    """

    def __init__(
        self, config: Config, now: float, campaigns: tuple[WorldCampaign, ...] = CAMPAIGNS
    ) -> None:
        self.config = config
        self.logs = config.directory.absolute() / "logs"
        self.truth = config.directory / "truth.jsonl"
        self.store = open_accounting(config.directory)
        self.spool = SpoolWriter(config.spool)
        self.state = self._state(now)
        self.use(campaigns, now)
        self.trouble = SimulatedTrouble(self.state["seed"], self.state["origin"])
        self.done = float(self.state["done"])
        workload = Workload(
            seed=self.state["seed"],
            trouble=self.trouble,
            rate=self._rate,
            campaigns=self._campaigns,
            ids_per_hour=self.state["ids_per_hour"],
            first_hour=self.state["first_hour"],
        )
        self._coming = workload.submissions(self.done - LONGEST_SECONDS)
        self._next = next(self._coming)
        self._ends: list[tuple[int, int, int, SimulatedArray, SimulatedAttempt]] = []
        self.sent = SentJobs(
            self.store, self.state["seed"], self.trouble, pace=config.pace, calm=config.calm
        )
        self._held: dict[int, Sent] = {}
        self._probe_jobs: dict[int, Sent] = {}
        self._reports: list[ProbeReport] = []
        for sent in self.sent.taken():
            self._line_up(sent)
        if self.truth.exists() and self.truth.stat().st_size > self.state["truth_bytes"]:
            # Drop the lines of a step that was killed before its commit; the step is repeated.
            os.truncate(self.truth, self.state["truth_bytes"])

    def close(self) -> None:
        """Close the store."""
        self.store.close()

    @property
    def origin(self) -> int:
        """The first start of the simulation, in seconds since the epoch."""
        return int(self.state["origin"])

    def advance(self, now: float) -> Iterator[float]:
        """Do everything due up to `now`, an hour at a time; every yield follows a commit."""
        while self.done < now:
            moment = min(now, self.done + _STEP_SECONDS)
            self._step(moment, now)
            yield moment

    def use(self, campaigns: tuple[WorldCampaign, ...], now: float) -> None:
        """Use other campaigns from the next hour on; earlier hours keep theirs."""
        periods = self.state["campaigns"]
        values = [asdict(campaign) for campaign in campaigns]
        if not periods or periods[-1]["campaigns"] != values:
            first = int(now // HOUR) + 1 if periods else 0
            oldest = int((self.state["done"] - LONGEST_SECONDS) // HOUR)
            begun = []
            for period in periods:
                if period["first_hour"] <= oldest:
                    begun.append(period["first_hour"])
            periods = [p for p in periods if not begun or p["first_hour"] >= begun[-1]]
            self.state["campaigns"] = [*periods, {"first_hour": first, "campaigns": values}]
            with self._transaction():
                self._put("campaigns", self.state["campaigns"])
        self._periods = []
        for period in self.state["campaigns"]:
            in_period = tuple(WorldCampaign(**values) for values in period["campaigns"])
            self._periods.append((period["first_hour"], in_period))

    def take_reports(self) -> list[ProbeReport]:
        """Return what probe jobs that ended since the last call have to report."""
        reports = self._reports
        self._reports = []
        return reports

    def finished(self) -> int:
        """Return the number of attempts in accounting."""
        return int(self.store.execute("SELECT count(*) FROM attempt").fetchone()[0])

    def next_due(self) -> float:
        """Return when the next submission or end is due."""
        return float(
            min(self._next.submitted, self._ends[0][0] if self._ends else self._next.submitted)
        )

    def prune(self, now: float) -> None:
        """Remove spool entries after MinJobAge, and records and logs older than `keep_days`."""
        purged = []
        for row in self.store.execute("SELECT spool_id FROM spooled WHERE purge <= ?", (now,)):
            purged.append(row[0])
        for job_id in purged:
            self.spool.purge(job_id)
        oldest = now - max(self.config.keep_days, self.config.days) * DAY
        with self._transaction():
            self.store.executemany(
                "DELETE FROM spooled WHERE spool_id = ?", ((job_id,) for job_id in purged)
            )
            self.store.execute("DELETE FROM attempt WHERE ended < ?", (oldest,))
            self.sent.forget(oldest)
        last_day = _day(oldest)
        for directory in self.logs.iterdir() if self.logs.is_dir() else ():
            if directory.name < last_day:
                shutil.rmtree(directory, ignore_errors=True)

    def _step(self, moment: float, now: float) -> None:
        """Do everything due in (done, moment], ordered by time, and commit it."""
        records: list[JobRecord] = []
        truths: list[str] = []
        spooled: dict[int, float] = {}
        for sent in self.sent.read(self.done):
            spooled.update(self._take(sent, now))
        while True:
            submits = self._next.submitted <= moment
            if (
                self._ends
                and self._ends[0][0] <= moment
                and not (submits and self._next.submitted <= self._ends[0][0])
            ):
                *_, submission, attempt = heapq.heappop(self._ends)
                records.append(self._end(submission, attempt))
                if attempt.cause.kind is not CauseKind.NONE:
                    truths.append(json.dumps(truth_of(submission, attempt)) + "\n")
            elif submits:
                spooled.update(self._submit(self._next, now))
                self._next = next(self._coming)
            else:
                break
        self._commit(moment, records, truths, spooled)

    def _submit(self, submission: SimulatedArray, now: float) -> dict[int, float]:
        """Spool a submission and schedule its ends, unless an earlier run did so."""
        first, last_skipped = self.state["skipped"]
        if first < submission.submitted <= last_skipped:
            return {}
        for attempt in submission.attempts:
            if attempt.ended > self.done:
                heapq.heappush(
                    self._ends, (attempt.ended, attempt.raw_id, attempt.number, submission, attempt)
                )
        if submission.submitted <= self.done:
            return {}
        random = random_of(self.state["seed"], "environment", submission.spool_id)
        environment = spooled_environment(variables_of(submission, random))
        script = script_of(submission, self._log_pattern(submission))
        if now - submission.submitted > _LATE_SECONDS:
            self.spool.backfill(submission.spool_id, environment, script, submission.submitted)
        else:
            self.spool.write(submission.spool_id, environment, script)
        last = max(attempt.ended for attempt in submission.attempts)
        return {submission.spool_id: max(last, now) + self.config.min_job_age_seconds}

    def _take(self, sent: Sent, now: float) -> dict[int, float]:
        """Spool a job submitted by the portal and schedule its ends.

        Called again after a hold, release or cancellation.
        """
        submission = sent.submission
        self._line_up(sent)
        if sent.is_new:
            environment = spooled_environment(sent.variables)
            self.spool.backfill(
                submission.spool_id, environment, sent.script.encode(), submission.submitted
            )
        last = max((attempt.ended for attempt in submission.attempts), default=now)
        return {
            submission.spool_id: max(last, now)
            + self.config.min_job_age_seconds
            + DAY * bool(sent.held)
        }

    def _line_up(self, sent: Sent) -> None:
        """Schedule the ends of a submitted job, replacing those scheduled before."""
        spool_id = sent.submission.spool_id
        self._ends = [end for end in self._ends if end[3].spool_id != spool_id]
        attempts = [attempt for attempt in sent.submission.attempts if attempt.ended > self.done]
        self._ends += [(a.ended, a.raw_id, a.number, sent.submission, a) for a in attempts]
        heapq.heapify(self._ends)
        self._held.pop(spool_id, None)
        if sent.is_probe:
            self._probe_jobs[spool_id] = sent
        if sent.held:
            self._held[spool_id] = sent

    def _end(self, submission: SimulatedArray, attempt: SimulatedAttempt) -> JobRecord:
        """Write the log of an attempt and return its accounting record."""
        log = self._log_pattern(submission).with_name(f"{submission.name}-{attempt.job_id}.out")
        probe_job = self._probe_jobs.pop(submission.spool_id, None)
        if probe_job is not None and attempt.started is not None:
            report = report_of(probe_job.variables, attempt, self.trouble)
            self._reports.append(report)
            log.parent.mkdir(parents=True, exist_ok=True)
            log.write_text("".join(log_of_probes(report)), encoding="utf-8")
        elif attempt.started is not None:
            log.parent.mkdir(parents=True, exist_ok=True)
            random = random_of(self.state["seed"], "log", attempt.raw_id, attempt.number)
            # A requeued job overwrites its output.
            with log.open("w", encoding="utf-8") as file:
                file.writelines(log_of(submission, attempt, random))
        return record_of(submission, attempt, log)

    def _log_pattern(self, submission: SimulatedArray) -> Path:
        job = "%A_%a" if submission.is_array else "%j"
        return (
            self.logs
            / _day(submission.submitted)
            / submission.campaign.experiment.lower()
            / f"%x-{job}.out"
        )

    def _commit(
        self, moment: float, records: list[JobRecord], truths: list[str], spooled: dict[int, float]
    ) -> None:
        with self.truth.open("a", encoding="utf-8") as file:
            file.writelines(truths)
            file.flush()
            length = file.tell()
        with self._transaction():
            add_records(self.store, records)
            self.store.executemany("INSERT OR REPLACE INTO spooled VALUES (?, ?)", spooled.items())
            store_current(self.store, self._current(moment))
            mark_complete(self.store, moment)
            self.sent.note()
            self._put("truth_bytes", length)
        self.done = moment

    def _current(self, moment: float) -> Iterator[CurrentJobs]:
        """Yield the queue: of each job, the attempt that ends next."""
        jobs: dict[int, tuple[SimulatedArray, SimulatedAttempt]] = {}
        for *_, submission, attempt in sorted(self._ends, key=lambda end: end[:3]):
            jobs.setdefault(attempt.raw_id, (submission, attempt))
        counts: Counter[tuple[int, int, str, CurrentState]] = Counter()
        for submission, attempt in jobs.values():
            runs = attempt.started is not None and attempt.started <= moment
            state = CurrentState.RUNNING if runs else CurrentState.QUEUED
            counts[
                submission.spool_id,
                submission.submitted,
                submission.campaign.experiment.lower(),
                state,
            ] += 1
        for (spool_id, submitted, account, state), number in counts.items():
            reason = "Priority" if state == CurrentState.QUEUED else ""
            yield CurrentJobs(
                str(spool_id),
                datetime.fromtimestamp(submitted, UTC),
                state,
                number,
                account,
                reason,
            )
        for sent in self._held.values():
            held = sent.submission
            submitted_at = datetime.fromtimestamp(held.submitted, UTC)
            account = held.campaign.experiment.lower()
            yield CurrentJobs(
                str(held.spool_id),
                submitted_at,
                CurrentState.HELD,
                sent.held,
                account,
                "JobHeldUser",
            )

    def _state(self, now: float) -> dict[str, Any]:
        """Return the state, creating it at the first start.

        After a long pause, only its last part is simulated.
        """
        state = {}
        for name, value in self.store.execute("SELECT name, value FROM state"):
            state[name] = json.loads(value)
        if "origin" not in state:
            config = self.config
            busiest = config.jobs_per_day * max(1, config.speed) / 24
            state |= {
                "seed": config.seed,
                "jobs_per_day": config.jobs_per_day,
                "speed": config.speed,
            }
            state |= {"origin": int(now), "first_hour": int((now - config.days * DAY) // HOUR)}
            state |= {
                "ids_per_hour": int(busiest * 2) + 100,
                "truth_bytes": 0,
                "campaigns": [],
                "skipped": [0, 0],
            }
            with self._transaction():
                for name, value in state.items():
                    self._put(name, value)
        # The first step stores this.
        state.setdefault("done", state["first_hour"] * HOUR - 1)
        oldest = now - max((self.config.days + 1) * DAY, LONGEST_SECONDS)
        if state["done"] < oldest:
            state["skipped"] = [state["done"], oldest]
            state["done"] = oldest
            self._put("skipped", state["skipped"])
        return state

    def _campaigns(self, hour: int) -> tuple[WorldCampaign, ...]:
        return next(campaigns for first, campaigns in reversed(self._periods) if first <= hour)

    def _rate(self, hour: int) -> float:
        """Return the number of jobs per day in an hour.

        From the first hour to the origin it grows by the factor `speed`.
        """
        first = self.state["first_hour"]
        origin = self.state["origin"] // HOUR
        grown = min(1.0, (hour - first) / max(1, origin - first))
        return float(self.state["jobs_per_day"] * self.state["speed"] ** grown)

    def _put(self, name: str, value: object) -> None:
        self.store.execute("INSERT OR REPLACE INTO state VALUES (?, ?)", (name, json.dumps(value)))

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self.store.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self.store.execute("ROLLBACK")
            raise
        self.store.execute("COMMIT")


def _day(moment: float) -> str:
    return datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%d")
