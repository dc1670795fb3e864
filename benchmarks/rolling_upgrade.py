"""Upgrade two hosts while they are used, and count what fails.

    python -m benchmarks.rolling_upgrade [--hosts N] [--previous COMMIT] [--pause SECONDS]

Two web servers, two workers and two beats on one PostgreSQL (on disk, with fsync) and one Valkey,
behind a balancer that gives connections to the hosts in turn; one capture. `upgrade.sh --rolling`
upgrades host after host, from the code of COMMIT (default: this one) to this one with a column
more. Then capture is restarted with the new code, and the first host goes back. Meanwhile users
read pages, programs call the API and post, and the scheduler starts jobs, each with a pause.

Prints the seconds of each step and of the answers. Exits with 1 if a request failed or was
refused, or a post or job is not there exactly once.
"""

import argparse
import os
import statistics
import subprocess
import sys
from collections import Counter
from pathlib import Path

from benchmarks.database import database
from dev.processes import ROOT, spawn
from dev.valkey import Valkey


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--hosts", type=int, default=2)
    parser.add_argument("--previous", metavar="COMMIT", help="default: this code")
    parser.add_argument("--pause", type=float, default=0.2, metavar="SECONDS")
    options = parser.parse_args()
    with database() as (base, url):
        (base / "valkey").mkdir()
        valkey = Valkey(base / "valkey", base)
        spawn("valkey", valkey.command(), base / "run", stdout=subprocess.DEVNULL)
        valkey.wait_ready()
        return measure(base, url, valkey.url(), options)


def measure(base: Path, url: str, redis_url: str, options: argparse.Namespace) -> int:
    # The installations name their database beside this one.
    os.environ |= {"DATABASE_URL": url, "REDIS_URL": redis_url}
    from tests.upgrade.rolling import RollingRun

    source = ROOT
    if options.previous:
        source = base / "previous"
        extract(options.previous, source)
    run = RollingRun(
        base,
        "opsportal",
        hosts=options.hosts,
        redis_url=redis_url,
        source=source,
        pause_seconds=options.pause,
    )
    try:
        run.sites[0].run(ROOT / "deploy/opsportal-manage", "migrate", "--verbosity", "0")
        outcome = run.upgrade()
    finally:
        run.close()
    return report(outcome)


def extract(commit: str, directory: Path) -> None:
    """Write the files of a commit into a new directory."""
    directory.mkdir()
    command = ["git", "archive", commit]
    archive = subprocess.run(command, cwd=ROOT, check=True, capture_output=True).stdout
    subprocess.run(["tar", "-x", "-C", directory], input=archive, check=True)


def report(outcome) -> int:
    for step, seconds in outcome.steps.items():
        print(f"{step:30} {seconds:6.1f} s")
    seconds = sorted(answer.seconds for answer in outcome.answers)
    methods = Counter(answer.request.partition(" ")[0] for answer in outcome.answers)
    print(
        f"{methods['GET']} GETs and {methods['POST']} POSTs: median "
        f"{statistics.median(seconds) * 1000:.0f} ms, p95 "
        f"{seconds[int(0.95 * len(seconds))] * 1000:.0f} ms, longest {seconds[-1]:.1f} s"
    )
    print(f"{len(outcome.failures)} failed, {outcome.refused_connections} connections refused")
    for answer in outcome.failures[:20]:
        print(f"  {answer.request}: {answer.status} after {answer.seconds:.1f} s")
    posts = Counter(outcome.posted.values())
    jobs = Counter(outcome.jobs.values())
    print(f"effects of a post: {dict(posts)}; archived rows of a captured job: {dict(jobs)}")
    is_whole = set(posts) == {1} and set(jobs) == {1}
    return int(not is_whole or bool(outcome.failures) or outcome.refused_connections > 0)


if __name__ == "__main__":
    sys.exit(main())
