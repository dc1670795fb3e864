"""Rate of archiving by number of worker processes:
`python -m benchmarks.archive_workers [--jobs N]`.

The database holds a backlog from capture, in batches of 250 jobs; 1, 2 and 4 worker processes
archive it. The time is from the first stored batch to the last, which excludes the start of Celery.
Jobs are those of `benchmarks.archive_capture`. `cpus` is the number of processors, which PostgreSQL
shares.
"""

import argparse
import json
import os

import psycopg

from benchmarks.portal import portal, wait_until
from benchmarks.spool import captured_jobs
from capture.wire.batches import pack

BATCH_JOBS = 250
PROCESSES = (1, 2, 4)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=20_000)
    arguments = parser.parse_args()
    jobs = captured_jobs(arguments.jobs)
    batches = [jobs[first : first + BATCH_JOBS] for first in range(0, len(jobs), BATCH_JOBS)]
    load = os.getloadavg()[0]
    rates = {number: rate(batches, number) for number in PROCESSES}
    figures = {
        "jobs": len(jobs),
        "cpus": os.cpu_count(),
        "load_before": round(load, 1),
        "jobs_per_s": {number: round(found) for number, found in rates.items()},
        "speedup": {number: round(found / rates[1], 2) for number, found in rates.items()},
    }
    print(json.dumps(figures, indent=2))


def rate(batches, processes):
    """Return jobs per second into a new store."""
    with portal() as archive:
        with psycopg.connect(archive.url) as connection, connection.cursor() as cursor:
            insert_batches(cursor, batches)
        jobs = sum(map(len, batches))
        for _ in range(processes):
            archive.wake_worker()
        with archive.working(processes):
            began = wait_until(archive.stored, step=0.02)
            before = archive.stored()
            ended = wait_until(lambda: archive.stored() >= jobs, step=0.02)
    return (jobs - before) / (ended - began)


def insert_batches(cursor, batches):
    for jobs in batches:
        cursor.execute(
            "INSERT INTO archive_intakebatch (cluster, host, jobs, size_bytes, captured_at, data)"
            " VALUES (%s, %s, %s, %s, %s, %s)",
            [
                "benchmark",
                "benchmark",
                len(jobs),
                sum(job.size_bytes for job in jobs),
                jobs[0].captured_at,
                pack(jobs),
            ],
        )


if __name__ == "__main__":
    main()
