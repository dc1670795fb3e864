"""How soon bad hosts are excluded and return: `python -m benchmarks.hosts [--holes N] [--nulls N]
[--outages N] [--seed N]`.

Runs simulated clusters with planted truth, each of 20 hosts with four slots that are never idle,
and lets the portal's own code decide each minute on a real database (`apps.hosts.domain`). After
two hours,

* on 100 clusters (N) one host breaks: a quarter each fail all jobs within a minute, fail all jobs
  after half their time, fail the jobs of the stages that need one service, or those of one
  experiment. Such jobs that run there at that time fail at their end. The host is mended two hours
  later, and returned by its probes;
* 100 clusters (N) have what may look like it, on no host: a bad release, arrays of bad input, jobs
  that fail at random, outages of one service;
* on 20 clusters (N) all jobs fail, on every host, for an hour.

A verdict takes a minute, probe jobs take six seconds. On a host that is not excluded they wait
until a job of the host ends. They see what is wrong with a host, and outages of services, but not
what fails the jobs of one experiment. Prints a table and one JSON object last, in
which each bar has its figure beside it: `minutes` and `jobs_lost` (medians, from the break until
the exclusion), `false_exclusions` (of hosts of the clusters without a bad one), `in_outages`
(hosts excluded in central outages), `incidents` (share of the outages in which one was opened),
`probe_share` (core-hours of probe jobs of all), and `return_minutes` (median, from the mend until
the return). Without a bar: holes that were never excluded, excluded hosts that were never returned,
and those returned before they were mended.
"""

import argparse
import json
import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.database import database, set_up_django

HOSTS = 20
SLOTS_OF_HOST = 4
ARRAY = 20
MEAN_MINUTES = 20
BREAKS_AT = 120
MENDED_AT = 240
ENDS_AT = 300
OUTAGE_MINUTES = 60
PROBE_SECONDS = 6
HOLE_KINDS = ("fast", "slow", "one service", "one experiment")
#: Stages with the services that they need, the same in each experiment.
STAGES = {
    "generation": ("cvmfs",),
    "simulation": ("cvmfs", "conditions"),
    "reconstruction": ("cvmfs", "storage"),
    "merge": ("storage",),
}
EXPERIMENTS = ("EXP1", "EXP2", "EXP3")
BARS = {
    "minutes": "at most 15",
    "jobs_lost": "at most 30",
    "false_exclusions": "0",
    "in_outages": "0",
    "incidents": "1",
    "probe_share": "below 0.001",
    "return_minutes": "at most 30",
}


@dataclass(frozen=True)
class Array:
    """An array of jobs; one with bad input fails within a minute."""

    number: int
    experiment: str
    stage: str
    has_bad_input: bool


@dataclass(frozen=True)
class Running:
    """A job in a slot; `fails_as` is the verdict on it, "" if it completes."""

    array: Array
    host: str
    started: float
    ends: float
    fails_as: str
    by_hole: bool


@dataclass
class Farm:
    """A simulated cluster and what is planted on it. Times are in minutes."""

    cluster: Any
    chance: random.Random
    hole: str = ""
    is_null: bool = False
    has_outage: bool = False
    bad_release: tuple[str, str] = ("", "")
    out_service: str = ""
    running: list[Running] = field(default_factory=list)
    arrays: int = 0
    current: Array | None = None
    left: int = 0
    lost: int = 0
    freed: set[str] = field(default_factory=set)
    excluded_at: float | None = None
    returned_at: float | None = None
    minutes_used: float = 0.0

    @property
    def hosts(self) -> list[str]:
        return [f"{self.cluster.name}-{number}" for number in range(HOSTS)]

    @property
    def bad_host(self) -> str:
        return self.hosts[0]

    def next_array(self) -> Array:
        """Return the array of the next job."""
        if self.left == 0 or self.current is None:
            self.arrays += 1
            self.left = ARRAY
            self.current = Array(
                number=self.arrays,
                experiment=self.chance.choice(EXPERIMENTS),
                stage=self.chance.choice(list(STAGES)),
                has_bad_input=self.is_null and self.chance.random() < 0.05,
            )
        self.left -= 1
        return self.current

    def start(self, host: str, minute: float) -> Running:
        """Start the next job on a free slot of a host."""
        array = self.next_array()
        length = max(1.0, self.chance.lognormvariate(0, 0.5) * MEAN_MINUTES)
        fails_as = ""
        by_hole = False
        if self.chance.random() < 0.03:
            fails_as = self.chance.choice(["code", "unknown"])
        if array.has_bad_input:
            length = 1.0
            fails_as = "unknown"
        if (array.experiment, array.stage) == self.bad_release and self.chance.random() < 0.7:
            fails_as = "unknown"
        if self._is_out(array, minute):
            length = min(length, 3.0)
            fails_as = "service"
        if host == self.bad_host and self._is_hit(array, minute):
            length = 1.0 if self.hole != "slow" else length / 2
            fails_as = self.chance.choice(["service", "unknown"])
            by_hole = True
        return Running(array, host, minute, minute + length, fails_as, by_hole)

    def _broken(self, job: Running) -> Running:
        """Return a job that runs when the host breaks: it fails at its end if it is hit."""
        if job.host != self.bad_host or not self._is_hit(job.array, BREAKS_AT):
            return job
        return replace(job, fails_as=self.chance.choice(["service", "unknown"]), by_hole=True)

    def _is_out(self, array: Array, minute: float) -> bool:
        if not BREAKS_AT <= minute < BREAKS_AT + OUTAGE_MINUTES:
            return False
        return self.has_outage or self.out_service in STAGES[array.stage]

    def probes_are_bad(self, host: str, minute: float) -> bool:
        """Return whether a probe job on a host finds something wrong."""
        if BREAKS_AT <= minute < BREAKS_AT + OUTAGE_MINUTES:
            if self.has_outage or self.out_service:
                return True
        if host != self.bad_host or not BREAKS_AT <= minute < MENDED_AT:
            return False
        return self.hole in {"fast", "slow", "one service"}

    def _is_hit(self, array: Array, minute: float) -> bool:
        if not self.hole or not BREAKS_AT <= minute < MENDED_AT:
            return False
        if self.hole == "one service":
            return "storage" in STAGES[array.stage]
        if self.hole == "one experiment":
            return array.experiment == EXPERIMENTS[0]
        return True

    def step(self, minute: int, excluded: set[str]) -> list[Running]:
        """Return the jobs that ended before this minute, and fill the free slots."""
        if minute == BREAKS_AT:
            self.running = [self._broken(job) for job in self.running]
        ended = [job for job in self.running if job.ends <= minute]
        self.running = [job for job in self.running if job.ends > minute]
        self.freed = {job.host for job in ended}
        for job in ended:
            self.minutes_used += job.ends - job.started
            if job.by_hole and self.excluded_at is None:
                self.lost += 1
        busy = dict.fromkeys(self.hosts, 0)
        for job in self.running:
            busy[job.host] += 1
        free = []
        for host, jobs in busy.items():
            if host not in excluded:
                free += [host] * (SLOTS_OF_HOST - jobs)
        self.chance.shuffle(free)
        for host in free:
            self.running.append(self.start(host, minute))
        return ended


class Store:
    """Writes what happens on the farms as accounting, harvest and probe jobs would."""

    def __init__(self, start: datetime) -> None:
        from apps.accounts.models import Experiment
        from apps.diagnosis.models import FailureGroup

        self.start = start
        self.experiments = {}
        for key in EXPERIMENTS:
            self.experiments[key] = Experiment.objects.create(key=key, name=key)
        self.group = FailureGroup.objects.create(
            fingerprint="f" * 32,
            verdict="service",
            title="It fails",
            status_at=start,
            first_seen_at=start,
            last_seen_at=start,
        )
        self.number = 0
        self.waiting: list[tuple[Any, str]] = []

    def at(self, minute: float) -> datetime:
        return self.start + timedelta(minutes=minute)

    def add(self, farms_and_jobs: list[tuple[Farm, Running]]) -> None:
        """Store jobs that ended, and the verdicts on those that failed a minute ago."""
        from apps.diagnosis.models import Verdict
        from apps.jobs.models import Job

        verdicts = []
        for row, verdict in self.waiting:
            verdicts.append(
                Verdict(
                    job=row,
                    experiment=row.experiment,
                    ended_at=row.ended_at,
                    verdict=verdict,
                    machine_verdict=verdict,
                    advice="retry",
                    category="service",
                    confidence="high",
                    group=self.group,
                    summary="Made up.",
                    catalogue_version="1",
                    decided_at=row.ended_at,
                )
            )
        Verdict.objects.bulk_create(verdicts)
        rows = []
        self.waiting = []
        for farm, job in farms_and_jobs:
            self.number += 1
            row = Job(
                cluster=farm.cluster,
                job_id=str(self.number),
                raw_id=self.number,
                spool_id=str(job.array.number),
                state="failed" if job.fails_as else "completed",
                exit_code=1 if job.fails_as else 0,
                submitted_at=self.at(job.started - 5),
                started_at=self.at(job.started),
                ended_at=self.at(job.ends),
                host=job.host,
                wall_seconds=60 * (job.ends - job.started),
                cpus=1,
                stage=job.array.stage,
                experiment=self.experiments[job.array.experiment],
                collected_at=self.at(job.ends),
            )
            rows.append(row)
            if job.fails_as:
                self.waiting.append((row, job.fails_as))
        Job.objects.bulk_create(rows)


def plant(options: argparse.Namespace, directory: Path) -> list[Farm]:
    """Create the clusters, and plant what is wrong on them."""
    from apps.clusters.models import Cluster, Host
    from apps.clusters.schedulers.simulated import open_accounting
    from apps.statusboard.models import Service

    listed_at = datetime.now(UTC)
    farms = []
    for number in range(options.holes + options.nulls + options.outages):
        store = directory / f"c{number}"
        open_accounting(store).close()
        cluster = Cluster.objects.create(
            name=f"c{number}",
            scheduler="simulated",
            submits=True,
            options={"dir": str(store)},
            service=Service.objects.create(slug=f"c{number}", name=f"c{number}"),
        )
        chance = random.Random(f"{options.seed} {number}")
        farm = Farm(cluster, chance)
        if number < options.holes:
            farm.hole = HOLE_KINDS[number % len(HOLE_KINDS)]
        elif number < options.holes + options.nulls:
            farm.is_null = True
            if chance.random() < 0.5:
                farm.bad_release = (chance.choice(EXPERIMENTS), chance.choice(list(STAGES)))
            if chance.random() < 0.5:
                farm.out_service = chance.choice(["cvmfs", "storage", "conditions"])
        else:
            farm.has_outage = True
        listed = [Host(cluster=cluster, name=host, listed_at=listed_at) for host in farm.hosts]
        Host.objects.bulk_create(listed)
        farms.append(farm)
    return farms


def run(farms: list[Farm], store: Store) -> Iterator[int]:
    """Let the farms run a minute at a time, and the portal decide after each; yield the minute."""
    from apps.hosts.domain.automatic import exclude_failing_hosts
    from apps.hosts.domain.exclusions import end_expired_exclusions, open_exclusions

    for minute in range(ENDS_AT):
        at = store.at(minute)
        excluded: dict[int, set[str]] = {}
        for cluster, host in open_exclusions(at).values_list("cluster", "host"):
            excluded.setdefault(cluster, set()).add(host)
        ended = []
        for farm in farms:
            names = excluded.get(farm.cluster.pk, set())
            note_exclusion(farm, names, minute)
            for job in farm.step(minute, names):
                ended.append((farm, job))
        store.add(ended)
        if minute >= BREAKS_AT - 30:
            end_expired_exclusions(at=at)
            exclude_failing_hosts(at=at)
            run_probes(farms, minute, at)
        yield minute


def note_exclusion(farm: Farm, names: set[str], minute: int) -> None:
    """Note what the portal did in the minute before, with which this one begins."""
    if farm.excluded_at is None and farm.bad_host in names:
        farm.excluded_at = minute - 1
    if farm.excluded_at is not None and farm.returned_at is None and farm.bad_host not in names:
        farm.returned_at = minute - 1


def run_probes(farms: list[Farm], minute: int, at: datetime) -> None:
    """Submit the probe jobs that are due, and report what they find."""
    from apps.hosts.domain.probes.probe_jobs import (
        give_up_on_probe_jobs,
        plan_probe_jobs,
        send_probe_jobs,
    )
    from apps.hosts.domain.probes.results import store_results
    from apps.hosts.models import ProbeJob

    for farm in farms:
        give_up_on_probe_jobs(cluster=farm.cluster, at=at)
    plan_probe_jobs(at=at)
    for farm in farms:
        send_probe_jobs(cluster=farm.cluster, now=lambda: at)
    farms_by_cluster = {farm.cluster.pk: farm for farm in farms}
    for job in ProbeJob.objects.filter(state="sent"):
        farm = farms_by_cluster[job.cluster_id]
        if job.exclusion_id is None and job.host not in farm.freed:
            continue
        is_bad = farm.probes_are_bad(job.host, minute)
        phase = {
            "name": "everything",
            "started_at": at.timestamp(),
            "ended_at": at.timestamp() + PROBE_SECONDS,
            "exit_code": int(is_bad),
        }
        store_results(job_name=job.name, phases=[phase], at=at + timedelta(seconds=PROBE_SECONDS))


def figures_of(farms: list[Farm]) -> dict[str, Any]:
    from apps.hosts.models import HostExclusion, ProbeJob
    from apps.statusboard.models import Incident

    holes = [farm for farm in farms if farm.hole]
    excluded_holes = [farm for farm in holes if farm.excluded_at is not None]
    returned = []
    returned_early = 0
    for farm in excluded_holes:
        if farm.returned_at is None:
            continue
        if farm.returned_at < MENDED_AT:
            returned_early += 1
        else:
            returned.append(farm)
    of_nulls = HostExclusion.objects.filter(
        cluster__in=[farm.cluster for farm in farms if farm.is_null]
    )
    of_good_hosts = HostExclusion.objects.filter(cluster__in=[farm.cluster for farm in holes])
    of_good_hosts = of_good_hosts.exclude(host__in=[farm.bad_host for farm in holes])
    outages = [farm for farm in farms if farm.has_outage]
    in_outages = HostExclusion.objects.filter(cluster__in=[farm.cluster for farm in outages])
    incidents = Incident.objects.filter(service__in=[farm.cluster.service for farm in outages])
    probe_seconds = PROBE_SECONDS * ProbeJob.objects.exclude(ended_at=None).count()
    used_seconds = 60 * sum(farm.minutes_used for farm in farms)
    return {
        "minutes": _median([farm.excluded_at - BREAKS_AT for farm in excluded_holes]),
        "jobs_lost": _median([farm.lost for farm in excluded_holes]),
        "false_exclusions": of_nulls.count() + of_good_hosts.count(),
        "in_outages": in_outages.count(),
        "incidents": incidents.values("service").distinct().count() / max(len(outages), 1),
        "probe_share": round(probe_seconds / used_seconds, 6),
        "return_minutes": _median([farm.returned_at - MENDED_AT for farm in returned]),
        "never_excluded": len(holes) - len(excluded_holes),
        "never_returned": len(excluded_holes) - len(returned) - returned_early,
        "returned_early": returned_early,
    }


def _median(values: Sequence[float]) -> float | None:
    return median(values) if values else None


def print_table(farms: list[Farm]) -> None:
    print(f"{'bad host':16} {'found':>7} {'minutes':>8} {'slowest':>8} {'lost':>6} {'most':>6}")
    for kind in HOLE_KINDS:
        holes = [farm for farm in farms if farm.hole == kind]
        excluded_holes = [farm for farm in holes if farm.excluded_at is not None]
        minutes = [
            farm.excluded_at - BREAKS_AT for farm in excluded_holes if farm.excluded_at is not None
        ]
        lost = [farm.lost for farm in excluded_holes]
        print(
            f"{kind:16} {len(excluded_holes):>3}/{len(holes):<3} {median(minutes or [0]):>8.1f} "
            f"{max(minutes, default=0):>8.1f} {median(lost or [0]):>6.1f} "
            f"{max(lost, default=0):>6}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--holes", type=int, default=100)
    parser.add_argument("--nulls", type=int, default=100)
    parser.add_argument("--outages", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with database(None) as (base, url):
        set_up_django(base, url, LOG_LEVEL="ERROR")
        from apps.hosts.models import Probe

        began = time.perf_counter()
        farms = plant(options, base / "clusters")
        Probe.objects.create(name="everything", script="true", active=True)
        store = Store(datetime.now(UTC).replace(second=0, microsecond=0) - timedelta(hours=5))
        for minute in run(farms, store):
            if minute % 30 == 0:
                print(f"minute {minute}: {time.perf_counter() - began:.0f} s", flush=True)
        print_table(farms)
        figures = figures_of(farms)
        report: dict[str, Any] = {"seed": options.seed, "jobs": store.number}
        for name, value in figures.items():
            report[name] = {"is": value, "bar": BARS[name]} if name in BARS else value
        print(json.dumps(report))


if __name__ == "__main__":
    main()
