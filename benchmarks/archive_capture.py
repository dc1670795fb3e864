"""Speed of capture and size of the archive: `python -m benchmarks.archive_capture [--sarchive
PATH]`.

A writer fills a spool on tmpfs at full speed, in the layout of slurmctld; `manage.py capture`
copies it to its journal and hands it over by HTTP to the web processes of a portal with a dedicated
PostgreSQL, on disk with fsync, where workers archive it. The same burst then goes to SArchive, if
the path of its binary is given (`cargo install sarchive`). 5,000 jobs of the same kind before the
burst train the dictionaries. Jobs are synthetic, see `benchmarks.spool`.
"""

import argparse
import json
import os
import shutil
import subprocess
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path

from benchmarks.portal import cpu_seconds, portal, wait_until
from benchmarks.spool import FIRST_JOB, make_spool, start_writer, write_corpus

SARCHIVE_BYTES = 8192  # of a job in SArchive's tree on ext4: two files, a block each
WARM_UP = 5_000


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=20_000)
    parser.add_argument(
        "--spool", type=Path, default=Path("/dev/shm"), help="where to make the spool (%(default)s)"
    )
    parser.add_argument("--workers", type=int, default=2, help="worker processes (%(default)s)")
    parser.add_argument(
        "--sarchive", type=Path, help="binary of SArchive, to be measured side by side"
    )
    arguments = parser.parse_args()
    scratch = Path(tempfile.mkdtemp(prefix="opsportal-benchmark-", dir=arguments.spool))
    try:
        corpus = write_corpus(scratch / "corpus", arguments.jobs)
        figures = ours(scratch, corpus, arguments.jobs, arguments.workers)
        if arguments.sarchive:
            figures |= compare(figures, theirs(scratch, corpus, arguments.jobs, arguments.sarchive))
    finally:
        shutil.rmtree(scratch)
    print(json.dumps(figures, indent=2))


def ours(scratch, corpus, jobs, workers):
    spool = make_spool(scratch / "spool")
    warm_up = write_corpus(scratch / "warm-up", WARM_UP, seed=8)
    with (
        portal() as archive,
        archive.serving(),
        archive.working(workers),
        archive.capturing(spool) as memory,
    ):
        with burst(scratch, warm_up, spool, WARM_UP):
            wait_until(lambda: archive.stored() >= WARM_UP)
        before, used = archive.store_bytes(), cpu_seconds(memory.pid)
        with burst(scratch, corpus, spool, jobs, first=FIRST_JOB + WARM_UP) as began:
            journaled = wait_until(lambda: archive.journaled() >= jobs + WARM_UP)
            durable = wait_until(lambda: archive.durable() >= jobs + WARM_UP)
            stored = wait_until(lambda: archive.stored() >= jobs + WARM_UP)
        spent = {
            part: round(1e6 * (now - used[part]) / jobs)
            for part, now in cpu_seconds(memory.pid).items()
        }
        after = archive.store_bytes()
    shutil.rmtree(spool)
    return {
        "jobs": jobs,
        "journaled_per_second": round(jobs / (journaled - began)),
        "durable_per_second": round(jobs / (durable - began)),
        "stored_per_second": round(jobs / (stored - began)),
        "bytes_a_job": round((after - before) / jobs),
        "bytes_of_sarchives": round((after - before) / jobs / SARCHIVE_BYTES, 3),
        "bytes_a_job_dictionaries_included": round(after / (jobs + WARM_UP)),
        "cpu_microseconds_a_job": spent,
        "peak_memory_mb": memory.peak_mb,
    }


def theirs(scratch, corpus, jobs, binary):
    """Return jobs per second of SArchive's file sink;
    its watchers need all ten directories before they start.
    """
    spool = make_spool(scratch / "sarchive-spool")
    archive = Path(tempfile.mkdtemp(prefix="opsportal-benchmark-"))
    command = [
        binary,
        "--cluster",
        "benchmark",
        "--spool",
        spool,
        "--scheduler",
        "slurm",
        "file",
        archive,
        "none",
    ]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        time.sleep(1)
        with burst(scratch, corpus, spool, jobs) as began:
            archived = wait_until(lambda: len(os.listdir(archive)) >= 2 * jobs, step=0.1)
    finally:
        process.kill()
        process.wait()
        shutil.rmtree(archive)
    return {"sarchive_per_second": round(jobs / (archived - began))}


def compare(figures, sarchive):
    rate = sarchive["sarchive_per_second"]
    return sarchive | {
        "journal_of_sarchive": round(figures["journaled_per_second"] / rate, 2),
        "durable_of_sarchive": round(figures["durable_per_second"] / rate, 2),
        "store_of_sarchive": round(figures["stored_per_second"] / rate, 2),
    }


@contextmanager
def burst(scratch, corpus, spool, jobs, first=FIRST_JOB):
    """Write jobs at full speed, and yield the time of the start."""
    began = time.monotonic()
    writer = start_writer(scratch, corpus, spool, jobs=jobs, first=first)
    yield began
    writer.communicate()


if __name__ == "__main__":
    main()
