"""How fast failed jobs are analysed: `python -m benchmarks.harvest --jobs 100000 --workers 2`.

Each job has a log of 64 kB. Prints one JSON object last: `jobs_per_s` of all workers, and `peak_mb` of the largest.
"""

import argparse
import json
import os
import resource
import time
from datetime import UTC, datetime, timedelta
from multiprocessing import get_context
from pathlib import Path

from benchmarks.database import database, set_up_django

LOG_BYTES = 64 * 1024
ENDS = (
    "[FATAL] Auth failed\njob script exit status 65\n",
    "Traceback (most recent call last):\n  File \"reco.py\", line 7, in run\n    x = d['{0}']\nKeyError: '{0}'\n",
    "slurmstepd: error: *** JOB {0} ON wn-7 CANCELLED AT 2026-11-22T06:23:59 DUE TO TIME LIMIT ***\n",
    "nothing that anybody knows {0}\n",
)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=100_000)
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    with database() as (base, url):
        set_up_django(base, url, LOG_ROOTS=str(base), PORTAL_URL="http://localhost", LOG_LEVEL="ERROR")
        from django.conf import settings

        settings.CELERY_BROKER_URL = "memory://"  # what a new group asks for is queued, and not waited for
        fill(base / "logs", options.jobs)
        print(json.dumps(measured(options.jobs, options.workers)))


def fill(directory: Path, count: int) -> None:
    from apps.accounts.domain import ensure_experiment
    from apps.clusters.models import Cluster
    from apps.diagnosis.models import LogHarvest
    from apps.jobs.models import Job

    directory.mkdir()
    at = datetime.now(UTC)
    experiment = ensure_experiment(key="NOVA", name="NOvA", by="fill", at=at)
    cluster = Cluster.objects.create(name="alps", scheduler="slurm", options={"log_owners": str(os.getuid())})
    body = "".join(f"Begin processing the {n}th record. run: 32480 subRun: 17 event: {n}\n" for n in range(2000))
    times = {"submitted_at": at - timedelta(hours=2), "started_at": at - timedelta(hours=1)}
    for start in range(0, count, 2000):
        jobs = []
        for number in range(start, min(start + 2000, count)):
            path = directory / f"{number}.out"
            end = ENDS[number % len(ENDS)].replace("{0}", str(number))
            path.write_text(body[: LOG_BYTES - len(end) - 1] + "\n" + end)
            ids = {"job_id": str(number), "raw_id": number, "spool_id": str(number), "log_path": str(path)}
            ended = at - timedelta(seconds=number)
            jobs.append(
                Job(
                    cluster=cluster,
                    experiment=experiment,
                    state="failed",
                    exit_code=1,
                    host=f"wn-{number % 50}",
                    ended_at=ended,
                    collected_at=at,
                    **ids,
                    **times,
                )
            )
        LogHarvest.objects.bulk_create(LogHarvest(job=job, due_at=at) for job in Job.objects.bulk_create(jobs))


def measured(count: int, workers: int) -> dict[str, object]:
    from django.db import connections

    from apps.diagnosis.models import LogHarvest

    connections.close_all()
    begun = time.monotonic()
    with get_context("fork").Pool(workers) as pool:
        peaks = pool.map(_harvest, range(workers))
    seconds = time.monotonic() - begun
    left = LogHarvest.objects.exclude(state="done").count()
    return {
        "jobs": count,
        "workers": workers,
        "jobs_per_s": round(count / seconds, 1),
        "peak_mb": round(max(peaks) / 1000),
        "not_done": left,
    }


def _harvest(_: int) -> int:
    from apps.diagnosis.domain.harvest import harvest_batch

    while harvest_batch(at=datetime.now(UTC)):
        pass
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


if __name__ == "__main__":
    main()
