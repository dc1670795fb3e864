"""How fast capture is and how little the archive takes: `python -m benchmarks.archive_capture [--jobs N]`.

A writer fills a spool on tmpfs flat out, as slurmctld lays it out; `manage.py capture` follows it into its journal
and a PostgreSQL of its own, on disk and with fsync. Jobs are made up: 200 users with scripts of 3 KB and environments
of 2.8 KB, every third job a resubmission, the others with a name, seed and directory of their own.
"""

import argparse
import json
import multiprocessing
import os
import random
import resource
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psycopg

from dev.postgres import Postgres
from dev.processes import guard, spawn
from tests.archive.spool_writer import environment_bytes

ROOT = Path(__file__).parents[1]
SARCHIVE_BYTES = 8192  # of a job in SArchive's tree on ext4: two files, a block each
TABLES = ("archive_blob", "archive_archivedjob", "archive_dictionary")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=20_000)
    parser.add_argument("--spool", type=Path, default=Path("/dev/shm"), help="where to make the spool (%(default)s)")
    arguments = parser.parse_args()
    base = Path(tempfile.mkdtemp(prefix="opsportal-benchmark-"))
    spool = Path(tempfile.mkdtemp(prefix="opsportal-benchmark-", dir=arguments.spool))
    watchdog, url = start_postgres(base)
    try:
        figures = measure(base, spool, url, arguments.jobs)
    finally:
        watchdog.stdin.close()
        watchdog.wait(timeout=20)
        shutil.rmtree(spool)
        shutil.rmtree(base, ignore_errors=True)
    print(json.dumps(figures, indent=2))


def start_postgres(base):
    run, sockets = base / "run", base / "s"
    run.mkdir()
    sockets.mkdir()
    watchdog = guard(run, remove=base)
    postgres = Postgres(base / "postgres", sockets)
    postgres.prepare()
    with (base / "postgres.log").open("ab") as log:
        server = spawn("postgres", postgres.command(), run, stdout=log, stderr=subprocess.STDOUT)
    postgres.wait_ready(server.poll)
    postgres.create_database("opsportal")
    return watchdog, postgres.url("opsportal")


def measure(base, spool, url, jobs):
    environment = os.environ | {
        "DATABASE_URL": url,
        "REDIS_URL": "redis://localhost:1/0",
        "SECRET_KEY": "benchmark" * 10,
        "VAR_DIR": str(base / "var"),
    }
    manage = [sys.executable, ROOT / "manage.py"]
    subprocess.run([*manage, "migrate", "-v0", "--skip-checks"], env=environment, check=True)
    for digit in range(10):
        (spool / f"hash.{digit}").mkdir()
    command = [*manage, "capture", "--cluster", "benchmark", "--scheduler", "slurm", "--spool", spool]
    capture = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE)
    try:
        capture.stdout.readline()
        writer = multiprocessing.Process(target=write_jobs, args=(spool, jobs))
        began = time.perf_counter()
        writer.start()
        times = follow(base, url, jobs, writer)
    finally:
        capture.terminate()
        capture.communicate(timeout=30)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    bytes_a_job = table_bytes(url) / jobs
    return {
        "jobs": jobs,
        "written_per_second": round(jobs / (times["written"] - began)),
        "journaled_per_second": round(jobs / (times["journaled"] - began)),
        "stored_per_second": round(jobs / (times["stored"] - began)),
        "bytes_a_job": round(bytes_a_job),
        "of_plain_files": round(bytes_a_job / SARCHIVE_BYTES, 3),
        "peak_memory_mb": round(used.ru_maxrss / 1024),
    }


def follow(base, url, jobs, writer):
    """Return when the last job was written, in the journal, and in the store."""
    journal = base / "var/journal/benchmark/journal.sqlite"
    times = {}
    with (
        psycopg.connect(url, autocommit=True) as store,
        sqlite3.connect(f"file:{journal}?mode=ro", uri=True) as database,
    ):
        while len(times) < 3:
            now = time.perf_counter()
            if not writer.is_alive():
                times.setdefault("written", now)
            row = database.execute("SELECT seq FROM sqlite_sequence WHERE name = 'entry'").fetchone()
            if row and row[0] >= jobs:
                times.setdefault("journaled", now)
            if "journaled" in times and store.execute("SELECT count(*) FROM archive_archivedjob").fetchone()[0] >= jobs:
                times.setdefault("stored", now)
            time.sleep(0.02)
    return times


def table_bytes(url):
    with psycopg.connect(url, autocommit=True) as store:
        store.execute("VACUUM")
        return sum(store.execute("SELECT pg_total_relation_size(%s)", [table]).fetchone()[0] for table in TABLES)


def write_jobs(spool, jobs):
    users = [User(number) for number in range(200)]
    choose = random.Random(7)
    for number in range(1, jobs + 1):
        script, environment = choose.choice(users).submit(choose)
        directory = f"{spool}/hash.{number % 10}/job.{number}"
        os.mkdir(directory, 0o700)  # noqa: PTH102 -- as fast as it goes
        for name, content in (("environment", environment), ("script", script)):
            with open(f"{directory}/{name}", "wb", buffering=0) as file:  # noqa: PTH123
                file.write(content)


class User:
    """Submits one script after another; users share tools, options and modules, and differ in how they use them."""

    def __init__(self, number):
        words = random.Random(number)
        tools, options, modules = (make_words(kind, 150) for kind in ("tool", "option", "module"))
        self.name = f"user{number}"
        self.lines = [
            f"srun ./{words.choice(tools)} --{words.choice(options)} {words.randrange(1000)} --{words.choice(options)}"
            for _ in range(48)
        ]
        self.variables = [
            (f"{module.upper()}_ROOT", f"/cvmfs/software/{module}/{words.randrange(20)}.{words.randrange(10)}/lib")
            for module in words.sample(modules, 45)
        ]
        self.last = None

    def submit(self, choose):
        if self.last is None or choose.random() > 0.35:
            run = choose.randrange(10**6)
            head = f"#!/bin/bash\n#SBATCH --job-name={self.name}-{run}\n#SBATCH --mem=4G\nexport SEED={run}\n"
            work = [("PWD", f"/scratch/{self.name}/run{run}"), ("SLURM_JOB_NAME", f"{self.name}-{run}")]
            script = (head + "\n".join(self.lines) + "\n").encode() + b"\0"
            self.last = script, environment_bytes([("USER", self.name), *work, *self.variables])
        return self.last


def make_words(kind, count):
    letters = random.Random(kind)
    return [f"{kind}_" + "".join(letters.choices("abcdefghij", k=8)) for _ in range(count)]


if __name__ == "__main__":
    main()
