"""Kill the controllers of a Slurm that fails over, with capture beside both; count what is lost.

    python -m benchmarks.failover.controllers [--rounds N] [--seconds SECONDS]
        [--outages NAME ...] [--directory DIRECTORY]

As root, with Slurm, bindfs and nginx from the system's packages. Each controller is a network namespace
with a host name of its own, and sees the shared `StateSaveLocation` by a mount of its own, as on a
network file system. Beside each of them runs a capture, with its own token and journal. Both hand
over to one portal. Meanwhile jobs are submitted steadily with sbatch, each with a number in script
and environment.

Outages, each of SECONDS:

* `acting`: the acting controller's machine is killed, with its capture
* `cut`: it loses network and shared state; its programs go on
* `standby`: the other controller's machine is killed, with its capture
* `takeover`: `scontrol takeover`, and the first controller is started again
* `captures`: both captures are killed, and no controller

Prints for each kind of outage how often it happened, how many jobs were accepted and how many calls
of sbatch failed meanwhile, how many jobs are lost, doubled or altered in the archive, how many of
the accepted jobs Slurm itself has forgotten, the longest time without an accepted job, and how long
after the outage until all was archived. Exits with 1 if the archive lacks a job, or has one twice
or otherwise than submitted.
"""

import argparse
import json
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from benchmarks.failover.archived import ArchivedNumber
from benchmarks.failover.directory import machines_directory
from benchmarks.failover.network import Machine, Network
from benchmarks.failover.portal import Portal
from benchmarks.failover.slurm import CLUSTER, CONTROLLERS, SlurmPair, reason_against_remote_state
from benchmarks.failover.submissions import Audit, Submitter, longest_gap, wait_until_archived
from benchmarks.portal import portal as stores
from tests.failover.waiting import wait_for

OUTAGES = ("acting", "cut", "standby", "takeover", "captures")
PAUSE_SECONDS = 0.1
#: How long jobs are submitted before an outage: slurmctld saves its jobs every five seconds.
BEFORE_SECONDS = 8
#: How long a job may take into the archive once everything is back.
RECOVERY_SECONDS = 120
TOKENS = f"""
import json
import django
django.setup()
from django.utils import timezone
from apps.archive.domain.capture_hosts import create_capture_host
tokens = []
for name in {CONTROLLERS!r}:
    _, token = create_capture_host(
        name=name, clusters=[{CLUSTER!r}], by="test", at=timezone.now()
    )
    tokens.append(token)
print(json.dumps(tokens))
"""
READ = """
import json
import django
django.setup()
from benchmarks.failover.archived import read_numbers
print(json.dumps(read_numbers()))
"""


@dataclass(frozen=True)
class Outage:
    """What one outage did; see the columns in the description of the module.

    `acting` is the machine whose controller acted before its end.
    """

    kind: str
    acting: str
    accepted: int
    refused: int
    forgotten: int
    audit: Audit
    gap_seconds: float
    recovery_seconds: float


class Run:
    """Outages of the controllers of `slurm`, whose jobs `read` finds in the archive."""

    def __init__(
        self,
        slurm: SlurmPair,
        read: Callable[[], list[ArchivedNumber]],
        *,
        pause_seconds: float = PAUSE_SECONDS,
        before_seconds: float = BEFORE_SECONDS,
    ) -> None:
        self._slurm = slurm
        self._before_seconds = before_seconds
        self._read = read
        self._submitter = Submitter(slurm, pause_seconds)
        self.outages: list[Outage] = []
        wait_for(lambda: self._submitter.submissions)

    def close(self) -> None:
        self._submitter.stop()

    def let_fail(self, kind: str, seconds: float) -> Outage:
        """Make one outage, and wait until all is back and archived.

        It lasts `seconds`, and until jobs are accepted again.
        """
        first = len(self._submitter.submissions)
        time.sleep(self._before_seconds)
        began = time.monotonic()
        begin, end = self._parts_of(kind)
        begin()
        time.sleep(seconds)
        self._wait_for_acceptance()
        acting = self._slurm.acting()
        end()
        back = time.monotonic()
        wait_for(self._slurm.is_whole)
        self._wait_for_acceptance()
        result = wait_until_archived(self._submitter, self._read, RECOVERY_SECONDS)
        ended = time.monotonic()

        submissions = self._submitter.submissions[first:]
        ids = {submission.job_id for submission in submissions if submission.job_id}
        outage = Outage(
            kind=kind,
            acting=acting.name if acting else "",
            accepted=len(ids),
            refused=sum(not submission.job_id for submission in submissions),
            forgotten=len(ids - self._slurm.known_jobs()),
            audit=result,
            gap_seconds=longest_gap(submissions, began, ended),
            recovery_seconds=ended - back,
        )
        self.outages.append(outage)
        return outage

    def _wait_for_acceptance(self) -> None:
        """Wait until a job is accepted that is submitted from now on."""
        now = time.monotonic()
        wait_for(
            lambda: any(
                submission.job_id and submission.began > now
                for submission in self._submitter.submissions
            )
        )

    def _parts_of(self, kind: str) -> tuple[Callable[[], None], Callable[[], None]]:
        """Return what begins an outage and what ends it."""
        slurm = self._slurm
        first, second = slurm.controllers
        parts = {
            "acting": (first.kill, first.come_back),
            "cut": (lambda: slurm.cut(first), lambda: slurm.mend(first)),
            "standby": (second.kill, second.come_back),
            "takeover": (slurm.let_second_act, slurm.start_first),
            "captures": (
                lambda: _each(slurm.controllers, lambda machine: machine.end("capture")),
                lambda: _each(slurm.controllers, lambda machine: machine.start("capture")),
            ),
        }
        return parts[kind]

    def report(self) -> int:
        """Print the table; return 1 if something was lost, doubled or altered."""
        by_kind = defaultdict(list)
        for outage in self.outages:
            by_kind[outage.kind].append(outage)
        print("| outage | times | accepted | sbatch failed | forgotten by Slurm | gap | recovery |")
        print("| --- | --- | --- | --- | --- | --- | --- |")
        for kind, outages in by_kind.items():
            sums = [
                sum(getattr(outage, name) for outage in outages)
                for name in ("accepted", "refused", "forgotten")
            ]
            longest = [
                f"{max(getattr(outage, name) for outage in outages):.1f} s"
                for name in ("gap_seconds", "recovery_seconds")
            ]
            print(f"| {' | '.join(map(str, [kind, len(outages), *sums, *longest]))} |")
        result = wait_until_archived(self._submitter, self._read, RECOVERY_SECONDS)
        accepted = sum(bool(submission.job_id) for submission in self._submitter.submissions)
        errors = Counter(submission.error for submission in self._submitter.submissions)
        del errors[""]
        print(f"{accepted} jobs accepted, {len(self._read())} rows archived")
        print(f"lost {result.lost}, doubled {result.doubled}, altered {result.altered}")
        print(f"errors of sbatch: {dict(errors)}")
        print(f"by Slurm: ids reused {result.reused}, resubmitted {result.resubmitted}")
        return int(not result.is_whole())


def _each(machines: list[Machine], step: Callable[[Machine], None]) -> None:
    for machine in machines:
        step(machine)


def measure(base: Path, kinds: list[str], rounds: int, seconds: float) -> int:
    """Set up portal, Slurm and captures, make the outages, and return the exit status."""
    network = Network(base)
    try:
        with stores() as archive:
            portal = Portal(base, archive.url, archive.environment["REDIS_URL"])
            host = network.add("portal")
            portal.serve_web(host)
            portal.serve_work(host)
            portal.serve_proxy([host])

            slurm = SlurmPair(network, base, remote_state=True)
            masking_key = portal.environment(host)["MASKING_KEY"]
            tokens = json.loads(portal.run(TOKENS))
            for machine, token in zip(slurm.controllers, tokens, strict=True):
                slurm.serve_capture(machine, portal.address, token, masking_key)

            run = Run(slurm, lambda: _read_numbers(portal))
            try:
                for _ in range(rounds):
                    for kind in kinds:
                        print(run.let_fail(kind, seconds), flush=True)
            finally:
                run.close()
            return run.report()
    finally:
        network.close()


def _read_numbers(portal: Portal) -> list[ArchivedNumber]:
    return [ArchivedNumber(*row) for row in json.loads(portal.run(READ))]


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5, help="default: 5")
    parser.add_argument("--seconds", type=float, default=30, help="default: 30")
    parser.add_argument("--outages", nargs="+", choices=OUTAGES, default=OUTAGES, metavar="NAME")
    parser.add_argument(
        "--directory", type=Path, help="a new one, which keeps the logs (default: none is kept)"
    )
    options = parser.parse_args()
    if reason := reason_against_remote_state():
        parser.error(reason)
    with machines_directory(options.directory) as base:
        return measure(base, options.outages, options.rounds, options.seconds)


if __name__ == "__main__":
    sys.exit(main())
