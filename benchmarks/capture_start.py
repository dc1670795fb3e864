"""How soon capture watches a spool after its start:
`python -m benchmarks.capture_start [--rounds N]`.

`manage.py capture` is started again and again, as a service manager does after a kill; each time
the seconds are taken until the kernel knows of its first watch, and until a job is captured that
was written at the start. In turn with `python -c 'import capture.main'`, so that both meet the same
load. `--busy 4` keeps four loops running beside both.
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

from benchmarks.spool import make_spool
from tests.archive.spool_writer import write_job

ROOT = Path(__file__).parents[1]
SETTINGS = {
    "CAPTURE_PORTAL": "http://127.0.0.1:1",  # capture begins without it
    "ARCHIVE_PORTAL_TOKEN": "none",
    "MASKING_KEY": "for the benchmark alone",
}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--busy", type=int, default=0, help="busy loops beside it (default none)")
    arguments = parser.parse_args()
    base = Path(tempfile.mkdtemp(prefix="opsportal-benchmark-"))
    load = os.getloadavg()[0]
    loops = [
        subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(arguments.busy)
    ]
    try:
        spool, environment = prepare(base)
        rounds = [
            (import_program(), *start(environment, spool, number))
            for number in range(1, arguments.rounds + 1)
        ]
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()
        shutil.rmtree(base)
    imports, watches, captures = zip(*rounds, strict=True)
    figures = {
        "load_before": round(load, 1),
        "import_ms": round(1000 * median(imports), 1),
        "first_watch_ms": round(1000 * median(watches), 1),
        "slowest_first_watch_ms": round(1000 * max(watches), 1),
        "first_job_captured_ms": round(1000 * median(captures), 1),
        "ratio": round(median(watch / imported for imported, watch, _ in rounds), 2),
    }
    print(json.dumps(figures, indent=2))


def import_program():
    """Return the seconds that Python takes to import the program."""
    began = time.monotonic()
    subprocess.run([sys.executable, "-c", "import capture.main"], check=True, cwd=ROOT)
    return time.monotonic() - began


def prepare(base):
    """Make a spool, and return it with the environment of a capture."""
    spool = make_spool(base / "spool")
    return spool, os.environ | SETTINGS | {"VAR_DIR": str(base / "var")}


def first_start(base):
    """Return the seconds of one start to the first watch and to the first job."""
    spool, environment = prepare(base)
    return start(environment, spool, 1)


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
