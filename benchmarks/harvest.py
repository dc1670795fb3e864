"""How fast failed jobs are analysed: `python -m benchmarks.harvest --jobs 100000 --workers 2`.

Each job has a log of 64 kB. Then each of some awkward logs is read by a worker of its own: a line
of 1 GB, nothing but errors, words of errors in random order, a bomb of gzip. Prints one JSON object
last: `jobs_per_s` of all workers, `cpu_ms` that a job takes of them, which says more on a busy
machine, and `peak_mb` of the largest worker on any log.
"""

import argparse
import gzip
import json
import os
import random
import time
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.database import database, set_up_django

if TYPE_CHECKING:
    from apps.clusters.models import Cluster

LOG_BYTES = 64 * 1024
ENDS = (
    "[FATAL] Auth failed\njob script exit status 65\n",
    (
        'Traceback (most recent call last):\n  File "reco.py", line 7, in run\n    x = '
        "d['{0}']\nKeyError: '{0}'\n"
    ),
    (
        "slurmstepd: error: *** JOB {0} ON wn-7 CANCELLED AT 2026-11-22T06:23:59 DUE TO TIME "
        "LIMIT ***\n"
    ),
    "nothing that anybody knows {0}\n",
)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=100_000)
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    with database() as (base, url):
        set_up_django(
            base, url, LOG_ROOTS=str(base), PORTAL_URL="http://localhost", LOG_LEVEL="ERROR"
        )
        from django.conf import settings

        settings.CELERY_BROKER_URL = (
            "memory://"  # what a new group asks for is queued, and not waited for
        )
        fill(base / "logs", options.jobs)
        figures = measured(options.jobs, options.workers)
        peaks = dict(awkward(base / "logs"))
        print(
            json.dumps(
                figures | {"peak_mb": max(figures["peak_mb"], *peaks.values()), "awkward_mb": peaks}
            )
        )


def fill(directory: Path, count: int) -> None:
    directory.mkdir()
    add_failed_jobs(directory, add_cluster(), range(count))


def add_cluster(name: str = "alps") -> "Cluster":
    """Add a cluster whose logs belong to this user."""
    from apps.clusters.models import Cluster

    return Cluster.objects.create(
        name=name, scheduler="slurm", options={"log_owners": str(os.getuid())}
    )


def add_failed_jobs(directory: Path, cluster: "Cluster", numbers: range) -> None:
    """Add failed jobs with these numbers, write their logs, and queue the logs."""
    from apps.accounts.domain.experiments import ensure_experiment
    from apps.diagnosis.models import LogHarvest
    from apps.jobs.models import Job

    at = datetime.now(UTC)
    experiment = ensure_experiment(key="NOVA", name="NOvA", by="fill", at=at)
    body = "".join(
        f"Begin processing the {n}th record. run: 32480 subRun: 17 event: {n}\n"
        for n in range(2000)
    )
    times = {"submitted_at": at - timedelta(hours=2), "started_at": at - timedelta(hours=1)}
    for start in range(0, len(numbers), 2000):
        jobs = []
        for number in numbers[start : start + 2000]:
            path = directory / f"{number}.out"
            end = ENDS[number % len(ENDS)].replace("{0}", str(number))
            path.write_text(body[: LOG_BYTES - len(end) - 1] + "\n" + end)
            ids = {
                "job_id": str(number),
                "raw_id": number,
                "spool_id": str(number),
                "log_path": str(path),
            }
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
        LogHarvest.objects.bulk_create(
            LogHarvest(job=job, due_at=at) for job in Job.objects.bulk_create(jobs)
        )


def measured(count: int, workers: int) -> dict[str, object]:
    from django.db import connections

    from apps.diagnosis.models import LogHarvest

    connections.close_all()
    begun = time.monotonic()
    with get_context("fork").Pool(workers) as pool:
        used = pool.map(_harvest, range(workers))
    seconds = time.monotonic() - begun
    left = LogHarvest.objects.exclude(state="done").count()
    return {
        "jobs": count,
        "workers": workers,
        "jobs_per_s": round(count / seconds, 1),
        "cpu_ms": round(1000 * sum(cpu for cpu, _ in used) / count, 2),
        "peak_mb": max(peak for _, peak in used),
        "not_done": left,
    }


def awkward(directory: Path) -> Iterable[tuple[str, int]]:
    """Yield the name of each awkward log, and the megabytes of a worker that harvests it and
    reads all of it.
    """
    from django.db import connections

    from apps.diagnosis.models import LogHarvest
    from apps.jobs.models import Job

    for number, (name, chunks) in enumerate(_awkward_logs()):
        path = directory / name
        with gzip.open(path, "wb", 1) if name.endswith(".gz") else path.open("wb") as file:
            file.writelines(chunks)
        job = Job.objects.earliest("pk")
        job.pk, job.job_id, job.raw_id, job.spool_id, job.log_path = (
            None,
            f"odd{number}",
            -number - 1,
            name,
            str(path),
        )
        job.save(force_insert=True)
        harvest = LogHarvest.objects.create(job=job, due_at=datetime.now(UTC))
        connections.close_all()
        with get_context("fork").Pool(1) as pool:
            (_, peak), *_ = pool.map(_harvest_one, [harvest.pk])
        path.unlink()
        yield name, peak


def _awkward_logs() -> Iterable[tuple[str, Iterable[bytes]]]:
    from apps.diagnosis.engine.evidence.catalogue import built_in

    examples = [pattern.example.encode() for pattern in built_in().patterns]
    errors = (b"\n".join(examples) * 100)[: 1024 * 1024] + b"\n"
    dice, words = random.Random(14), b" ".join(examples).split()
    yield "line", (b"x" * 1024 * 1024 for _ in range(1024))
    yield "errors", (errors for _ in range(63))
    yield "words", (b" ".join(dice.choices(words, k=20)) + b"\n" for _ in range(100_000))
    yield "bomb.gz", (errors for _ in range(1024))


def _harvest(_: int) -> tuple[float, int]:
    from apps.diagnosis.domain.verdicts.harvest import harvest_batch

    while harvest_batch(at=datetime.now(UTC)):
        pass
    return _used()


def _harvest_one(pk: int) -> tuple[float, int]:
    from apps.diagnosis.domain.verdicts.harvest import harvest_log, survey_log
    from apps.diagnosis.models import LogHarvest

    # This counts its own peak, not that of the process it was forked from.
    Path("/proc/self/clear_refs").write_text("5")
    for work in (harvest_log, survey_log):
        work(
            harvest=LogHarvest.objects.select_related("job__cluster", "job__experiment").get(pk=pk),
            at=datetime.now(UTC),
        )
    return _used()


def _used() -> tuple[float, int]:
    """Return CPU seconds and the most megabytes of this process."""
    peak = next(
        line
        for line in Path("/proc/self/status").read_text().splitlines()
        if line.startswith("VmHWM")
    )
    return time.process_time(), round(int(peak.split()[1]) / 1000)


if __name__ == "__main__":
    main()
