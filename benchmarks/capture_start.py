"""How soon capture watches a spool after its start:
`python -m benchmarks.capture_start [--rounds N]`.

`manage.py capture` is started again and again, as a service manager does after a kill; each time
the seconds are taken until the kernel knows of its first watch, and until a job is captured that
was written at the start. In turn with `python -c 'import watchdog'`, so that both meet the same
load.

Before that it is started with an empty journal, so that each start is the first ever and makes its
plan; CPU seconds are those of all its processes until its first watch. `--busy 4` keeps four loops
running beside both.
"""

import argparse
import json
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
from contextlib import closing
from pathlib import Path
from statistics import median

from benchmarks.database import settings
from benchmarks.spool import make_spool
from tests.archive.spool_writer import write_job

ROOT = Path(__file__).parents[1]
NOWHERE = "postgresql://opsportal@127.0.0.1:1/opsportal"  # capture begins without it


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument(
        "--first-rounds", type=int, default=5, help="rounds of the first start ever (default 5)"
    )
    parser.add_argument("--busy", type=int, default=0, help="busy loops beside it (default none)")
    arguments = parser.parse_args()
    base = Path(tempfile.mkdtemp(prefix="opsportal-benchmark-"))
    load = os.getloadavg()[0]
    loops = [
        subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(arguments.busy)
    ]
    try:
        firsts = [first_start(base / f"first-{number}") for number in range(arguments.first_rounds)]
        spool, environment = make_spool(base / "spool"), os.environ | settings(base, NOWHERE)
        start(environment, spool, 1)  # makes the plan
        rounds = [
            (watchdog(), *start(environment, spool, number))
            for number in range(2, arguments.rounds + 2)
        ]
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()
        shutil.rmtree(base)
    first_watches, first_cpus = zip(*firsts, strict=True)
    imports, watches, captures = zip(*rounds, strict=True)
    figures = {
        "load_before": round(load, 1),
        "first_start_watch_ms": round(1000 * median(first_watches)),
        "first_start_slowest_watch_ms": round(1000 * max(first_watches)),
        "first_start_cpu_ms": round(1000 * min(first_cpus)),
        "import_watchdog_ms": round(1000 * median(imports), 1),
        "first_watch_ms": round(1000 * median(watches), 1),
        "slowest_first_watch_ms": round(1000 * max(watches), 1),
        "first_job_captured_ms": round(1000 * median(captures), 1),
        "ratio": round(median(watch / imported for imported, watch, _ in rounds), 2),
    }
    print(json.dumps(figures, indent=2))


def watchdog():
    """Return the seconds that Python takes to import watchdog."""
    began = time.monotonic()
    subprocess.run([sys.executable, "-c", "import watchdog"], check=True, cwd=ROOT)
    return time.monotonic() - began


def first_start(base):
    """Start capture without a plan. Return the seconds to its first watch, and those of CPU."""
    spool, environment = make_spool(base / "spool"), os.environ | settings(base, NOWHERE)
    began = time.monotonic()
    capture = run_capture(environment, spool)
    try:
        while not watches(capture.pid):
            time.sleep(0.0005)
        return time.monotonic() - began, cpu_seconds(capture.pid)
    finally:
        capture.kill()
        capture.wait()


def run_capture(environment, spool):
    command = [
        sys.executable,
        "manage.py",
        "capture",
        "--cluster",
        "benchmark",
        "--scheduler",
        "slurm",
    ]
    return subprocess.Popen(
        [*command, "--spool", spool], env=environment, cwd=ROOT, stdout=subprocess.DEVNULL
    )


def start(environment, spool, number):
    """Start capture, and kill it once it has captured a job.

    Return the seconds to its first watch and to the job.
    """
    began = time.monotonic()
    capture = run_capture(environment, spool)
    try:
        while not watches(capture.pid):
            time.sleep(0.0005)
        watched = time.monotonic()
        write_job(spool, number)
        while journaled(environment) < number:
            time.sleep(0.002)
        return watched - began, time.monotonic() - began
    finally:
        capture.kill()
        capture.wait()


def watches(pid):
    """Whether the process has a watch of inotify."""
    try:
        return any(
            "inotify wd:" in file.read_text() for file in Path(f"/proc/{pid}/fdinfo").iterdir()
        )
    except OSError:  # it opens and closes files
        return False


def cpu_seconds(pid):
    """Return the CPU seconds of a process and of those that it has started and seen end."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


def journaled(environment):
    """Return how many jobs are in the journal, which nobody takes from it."""
    journal = Path(environment["VAR_DIR"]) / "journal/benchmark/journal.sqlite"
    try:
        with closing(sqlite3.connect(f"file:{journal}?mode=ro", uri=True)) as database:
            return database.execute("SELECT coalesce(sum(jobs), 0) FROM batch").fetchone()[0]
    except sqlite3.Error:  # not made yet
        return 0


if __name__ == "__main__":
    main()
