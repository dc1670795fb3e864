"""Measure how much more two worker hosts do than one.

    python -m benchmarks.failover.throughput [--rounds N] [--processors LIMIT] [--logs N]
        [--jobs N] [--work NAME ...] [--directory DIRECTORY]

As root, with Patroni 3.0.3 or later and etcd-server. PostgreSQL, Valkey and the two
worker hosts are machines as in `benchmarks.failover`. The kernel gives each worker host LIMIT of a
processor at most (control groups), as if it had a small one of its own.

Work, of which a new queue is filled before each turn:

* `logs`: logs of failed jobs, which are harvested and diagnosed, those of `benchmarks.harvest`
* `archive`: batches of captured jobs, which are archived, those of `benchmarks.archive_workers`

In each round, the first host works alone, then both, then the second alone, then both. The time is
from the first message to the last finished job. Prints the rate of each turn, how much of a processor
its hosts and the servers of PostgreSQL took meanwhile, and the rates of both hosts over those of one.
"""

import argparse
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import psycopg

from benchmarks import harvest
from benchmarks.archive_workers import BATCH_JOBS, insert_batches
from benchmarks.failover.cache import Cache
from benchmarks.failover.database import Database
from benchmarks.failover.directory import machines_directory
from benchmarks.failover.network import Machine, Network
from benchmarks.failover.portal import Portal
from benchmarks.spool import captured_jobs
from tests.failover.waiting import wait_for

HOSTS = ("work1", "work2")
#: Hosts that work in the turns of a round.
TURNS = (HOSTS[:1], HOSTS, HOSTS[1:], HOSTS)
#: As the unit `opsportal-worker@` has it.
CONCURRENCY = 2
#: Messages are hints that may be lost; beat would send them again.
WAKE_SECONDS = 2
LONGEST_TURN_SECONDS = 600


@dataclass(frozen=True)
class Turn:
    """What so many hosts did; processors are those that were taken on average."""

    hosts: int
    jobs_per_s: float
    worker_processors: float
    postgres_processors: float
    #: CPU time of all servers of PostgreSQL for one job.
    postgres_ms: float


class Logs:
    """Failed jobs, whose logs are harvested."""

    queue = "harvest"

    def __init__(self, directory: Path, jobs: int) -> None:
        self._directory = directory
        self._jobs = jobs
        self._first = 0
        self._cluster = harvest.add_cluster()

    def fill(self) -> int:
        """Queue new work; return the number of its jobs."""
        numbers = range(self._first, self._first + self._jobs)
        harvest.add_failed_jobs(self._directory, self._cluster, numbers)
        self._first += self._jobs
        return self._jobs

    def wake(self) -> None:
        """Send a worker a message that there is work."""
        from apps.diagnosis.domain.verdicts.harvest import wake_workers

        wake_workers()

    def is_done(self) -> bool:
        from apps.diagnosis.enums import HarvestState
        from apps.diagnosis.models import LogHarvest

        return not LogHarvest.objects.exclude(state=HarvestState.DONE).exists()


class Batches:
    """Batches of captured jobs, which are archived."""

    queue = "archive"

    def __init__(self, url: str, jobs: int, turns: int) -> None:
        self._url = url
        self._jobs = jobs
        self._captured = captured_jobs(jobs * turns)
        self._queued = 0

    def fill(self) -> int:
        """Queue new work; return the number of its jobs."""
        jobs = self._captured[self._queued : self._queued + self._jobs]
        batches = [jobs[first : first + BATCH_JOBS] for first in range(0, len(jobs), BATCH_JOBS)]
        with psycopg.connect(self._url) as connection, connection.cursor() as cursor:
            insert_batches(cursor, batches)
        self._queued += len(jobs)
        return len(jobs)

    def wake(self) -> None:
        """Send a worker a message that there is work."""
        from apps.archive.domain.intake import wake_workers

        wake_workers()

    def is_done(self) -> bool:
        from apps.archive.models import ArchivedJob

        return ArchivedJob.objects.count() >= self._queued


class Run:
    """A portal with two limited worker hosts on machines in `base`."""

    def __init__(self, base: Path, processors: float) -> None:
        self._network = Network(base)
        add = self._network.add
        witness = add("witness")
        self._postgres = (add("db1"), add("db2"))
        self.database = Database(*self._postgres, witness)
        cache = Cache(add("cache1"), add("cache2"), witness)
        self._portal = Portal(base, self.database.url, cache.url, LOG_ROOTS=str(base / "logs"))
        (base / "logs").mkdir()
        self._workers = {name: add(name) for name in HOSTS}
        for machine in self._workers.values():
            machine.limit(processors)
        self._portal.set_up_django()

    def close(self) -> None:
        self._network.close()

    def measure(self, work: Any, rounds: int) -> list[Turn]:
        """Do each turn so many times, after one of both that does not count."""
        for machine in self._workers.values():
            self._portal.serve_worker(machine, work.queue, concurrency=CONCURRENCY)
        wait_for(lambda: self._answering(HOSTS))
        self._take_turn(work, HOSTS)
        turns = []
        for _ in range(rounds):
            for hosts in TURNS:
                turn = self._take_turn(work, hosts)
                turns.append(turn)
                print(f"{work.queue}: {turn}, load {os.getloadavg()[0]:.0f}", flush=True)
        for machine in self._workers.values():
            machine.end(f"worker-{work.queue}")
        return turns

    def _take_turn(self, work: Any, hosts: tuple[str, ...]) -> Turn:
        self._let_work(hosts, work.queue)
        jobs = work.fill()
        machines = [self._workers[host] for host in hosts]
        before = self._processor_seconds(machines)
        began = time.monotonic()
        _wait_until_done(work)
        seconds = time.monotonic() - began
        after = self._processor_seconds(machines)
        worker_seconds = after[0] - before[0]
        postgres_seconds = after[1] - before[1]
        return Turn(
            hosts=len(hosts),
            jobs_per_s=round(jobs / seconds, 1),
            worker_processors=round(worker_seconds / seconds, 2),
            postgres_processors=round(postgres_seconds / seconds, 2),
            postgres_ms=round(1000 * postgres_seconds / jobs, 2),
        )

    def _processor_seconds(self, machines: list[Machine]) -> tuple[float, float]:
        """Return the CPU time of these hosts so far, and that of PostgreSQL."""
        workers = sum(machine.processor_seconds() for machine in machines)
        postgres = sum(server.processor_seconds("postgres") for server in self._postgres)
        return workers, postgres

    def _let_work(self, hosts: tuple[str, ...], queue: str) -> None:
        """Let the workers of these hosts, and of no others, take messages of a queue."""
        from apps.core.domain.background import celery_app

        control = celery_app().control
        for host in HOSTS:
            change = control.add_consumer if host in hosts else control.cancel_consumer
            change(queue, destination=[f"{queue}@{host}"])
        wait_for(lambda: self._consumers(queue) == set(hosts))

    def _consumers(self, queue: str) -> set[str]:
        """Return the hosts whose worker takes messages of a queue."""
        from apps.core.domain.background import celery_app

        answers = celery_app().control.inspect(timeout=3).active_queues() or {}
        hosts = set()
        for worker, queues in answers.items():
            if any(entry["name"] == queue for entry in queues):
                hosts.add(worker.partition("@")[2])
        return hosts

    def _answering(self, hosts: tuple[str, ...]) -> bool:
        from apps.core.domain.background import celery_app

        answers = celery_app().control.inspect(timeout=3).ping() or {}
        return {worker.partition("@")[2] for worker in answers} == set(hosts)


def _wait_until_done(work: Any) -> None:
    """Wake workers until all is done. Raises TimeoutError."""
    deadline = time.monotonic() + LONGEST_TURN_SECONDS
    next_wake = 0.0
    while not work.is_done():
        now = time.monotonic()
        if now > deadline:
            raise TimeoutError(f"{work.queue}: not done after {LONGEST_TURN_SECONDS} s")
        if now > next_wake:
            for _ in range(CONCURRENCY * len(HOSTS)):
                work.wake()
            next_wake = now + WAKE_SECONDS
        time.sleep(0.1)


def report(name: str, turns: list[Turn]) -> None:
    """Print rows of the table in docs/scale-out.md."""
    medians = {}
    for hosts in (1, 2):
        of_hosts = [turn for turn in turns if turn.hosts == hosts]
        rates = [turn.jobs_per_s for turn in of_hosts]
        medians[hosts] = median(rates)
        workers = median(turn.worker_processors for turn in of_hosts)
        postgres = median(turn.postgres_processors for turn in of_hosts)
        milliseconds = median(turn.postgres_ms for turn in of_hosts)
        print(
            f"| {name} | {hosts} | {len(of_hosts)} | {median(rates):.1f} "
            f"({min(rates):.1f} to {max(rates):.1f}) | {workers:.2f} | {postgres:.2f} "
            f"| {milliseconds:.2f} ms | {medians[hosts] / medians[1]:.2f} |"
        )


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=3, help="default: 3")
    parser.add_argument("--processors", type=float, default=0.25, help="default: 0.25")
    parser.add_argument("--logs", type=int, default=2000, help="in each turn, default: 2000")
    parser.add_argument("--jobs", type=int, default=8000, help="in each turn, default: 8000")
    parser.add_argument("--work", nargs="+", choices=("logs", "archive"), metavar="NAME")
    parser.add_argument(
        "--directory", type=Path, help="a new one, which keeps the logs (default: none is kept)"
    )
    options = parser.parse_args()
    with machines_directory(options.directory) as base:
        run = Run(base, options.processors)
        try:
            kinds: dict[str, Callable[[], Any]] = {
                "logs": lambda: Logs(base / "logs", options.logs),
                "archive": lambda: Batches(
                    run.database.url, options.jobs, 1 + len(TURNS) * options.rounds
                ),
            }
            turns = {}
            for name in options.work or kinds:
                turns[name] = run.measure(kinds[name](), options.rounds)
            print("| work | hosts | turns | jobs/s | hosts | PostgreSQL | a job | of one host |")
            print("| --- | --- | --- | --- | --- | --- | --- | --- |")
            for name, of_work in turns.items():
                report(name, of_work)
        finally:
            run.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
