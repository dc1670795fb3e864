"""Spools for the benchmarks: synthetic jobs, and a writer that creates them as slurmctld does.

The jobs: 200 users with scripts of 3 KB and environments of 2.8 KB; every third job is a
resubmission, the others have an individual name, seed and directory. The writer is a small C
program; without a compiler, Python is used.
"""

import os
import random
import shutil
import struct
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

from capture.wire.entry import CapturedJob
from tests.archive.spool_writer import environment_bytes

FIRST_JOB = 4_200_000  # job ids of a cluster that has run for years
SUBMITTED = datetime(2026, 11, 20, tzinfo=UTC)
_LENGTHS = struct.Struct("=II")


def make_spool(directory):
    for digit in range(10):
        (directory / f"hash.{digit}").mkdir(parents=True)
    return directory


def write_corpus(path, jobs, seed=7):
    """Write `jobs` different submissions to a file for the writer."""
    with path.open("wb") as corpus:
        for _, script, environment in submissions(jobs, seed):
            corpus.write(_LENGTHS.pack(len(environment), len(script)) + environment + script)
    return path


def captured_jobs(count):
    """Return different submissions as capture hands them over."""
    facts = {"account": "nova", "name": "simulate"}
    jobs = []
    for number, (user, script, environment) in enumerate(submissions(count)):
        at = SUBMITTED + timedelta(milliseconds=number)
        jobs.append(
            CapturedJob(
                "benchmark",
                "slurm",
                str(number),
                at,
                at,
                script[:-1],
                environment,
                user=user,
                **facts,
            )
        )
    return jobs


def submissions(count, seed=7):
    """Yield the user of each submission, its script with a NUL, and its environment."""
    users = [User(number) for number in range(200)]
    choose = random.Random(seed)
    for _ in range(count):
        user = choose.choice(users)
        yield user.name, *user.submit(choose)


def start_writer(directory, corpus, spool, *, jobs, first=FIRST_JOB, rate=0, remove_after_ms=0):
    """Start writing; at the end, the process prints the seconds it took."""
    program = directory / "spool_writer"
    source = Path(__file__).with_name("spool_writer.c")
    compiler = shutil.which("cc")
    if compiler and not program.exists():
        subprocess.run([compiler, "-O2", "-o", program, source], check=True)
    command = [program] if compiler else [sys.executable, "-m", "benchmarks.spool"]
    values = (corpus, spool, first, jobs, rate, remove_after_ms)
    return subprocess.Popen(
        [*command, *map(str, values)], stdout=subprocess.PIPE, cwd=Path(__file__).parents[1]
    )


class User:
    """Submits one script after another; users share tools,
    options and modules but use them differently.
    """

    def __init__(self, number):
        words = random.Random(number)
        tools, options, modules = (make_words(kind, 150) for kind in ("tool", "option", "module"))
        self.name = f"user{number}"
        self.lines = [
            (
                f"srun ./{words.choice(tools)} --{words.choice(options)} {words.randrange(1000)} "
                f"--{words.choice(options)}"
            )
            for _ in range(48)
        ]
        self.variables = [
            (
                f"{module.upper()}_ROOT",
                f"/cvmfs/software/{module}/{words.randrange(20)}.{words.randrange(10)}/lib",
            )
            for module in words.sample(modules, 45)
        ]
        self.last = None

    def submit(self, choose):
        if self.last is None or choose.random() > 0.35:
            run = choose.randrange(10**6)
            head = (
                f"#!/bin/bash\n#SBATCH --job-name={self.name}-{run}\n#SBATCH --mem=4G\nexport "
                f"SEED={run}\n"
            )
            work = [
                ("PWD", f"/scratch/{self.name}/run{run}"),
                ("SLURM_JOB_NAME", f"{self.name}-{run}"),
            ]
            script = (head + "\n".join(self.lines) + "\n").encode() + b"\0"
            self.last = script, environment_bytes([("USER", self.name), *work, *self.variables])
        return self.last


def make_words(kind, count):
    letters = random.Random(kind)
    return [f"{kind}_" + "".join(letters.choices("abcdefghij", k=8)) for _ in range(count)]


def _write(corpus, spool, first, jobs, rate, remove_after_ms):
    """Do the same as the C program, slower."""
    content = Path(corpus).read_bytes()
    began, at, removed, made = time.monotonic(), 0, 0, []
    for number in range(jobs):
        if rate:
            time.sleep(max(0, began + number / rate - time.monotonic()))
        at = at if at < len(content) else 0
        sizes = _LENGTHS.unpack_from(content, at)
        middle = at + _LENGTHS.size + sizes[0]
        files = {
            "environment": content[at + _LENGTHS.size : middle],
            "script": content[middle : middle + sizes[1]],
        }
        at = middle + sizes[1]
        directory = f"{spool}/hash.{(first + number) % 10}/job.{first + number}"
        os.mkdir(directory, 0o700)  # noqa: PTH102 -- as fast as it goes
        for name, text in files.items():
            with open(f"{directory}/{name}", "wb", buffering=0) as file:  # noqa: PTH123
                file.write(text)
        made.append((time.monotonic(), directory))
        while remove_after_ms and made[removed][0] + remove_after_ms / 1000 < made[-1][0]:
            shutil.rmtree(made[removed][1])
            removed += 1
    print(f"{time.monotonic() - began:.3f}", flush=True)
    for moment, directory in made[removed:] if remove_after_ms else ():
        time.sleep(max(0, moment + remove_after_ms / 1000 - time.monotonic()))
        shutil.rmtree(directory)


if __name__ == "__main__":
    _write(
        *sys.argv[1:3],
        *(int(value) for value in sys.argv[3:5]),
        *(float(value) for value in sys.argv[5:7]),
    )
