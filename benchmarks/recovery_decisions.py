"""How fast recovery rules decide: `python -m benchmarks.recovery_decisions [--jobs N]`.

Jobs of a few arrays of one request fail, and each has a verdict; the shipped rules are active.
Other jobs were decided about on the same day already, as the totals of a day are counted with each
batch. Prints one JSON object last: failed jobs decided about per second, by the clock and by the
processor's time of this process, seconds in the database, and queries of a batch.
"""

import argparse
import itertools
import json
import os
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from benchmarks.database import database, set_up_django

if TYPE_CHECKING:
    from apps.jobs.models import Job
    from apps.submission.models import Submission

GB = 1000**3
#: End state, verdict, category and known error of the jobs, in turn.
FAILURES = (
    ("out_of_memory", "resource", "resource", "SLURM-OOM"),
    ("failed", "service", "service", "SAMWEB-5XX"),
    ("timeout", "resource", "resource", "SLURM-TIMEOUT"),
    ("failed", "code", "experiment-code", "ERROR-LINE"),
    ("out_of_memory", "resource", "resource", "SLURM-OOM"),
    ("node_fail", "service", "site", "NODE-FAIL"),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=20_000, help="to decide about")
    parser.add_argument("--earlier", type=int, default=100_000, help="decided about this day")
    parser.add_argument("--arrays", type=int, default=4)
    options = parser.parse_args()
    with database() as (base, url):
        set_up_django(base, url, LOG_LEVEL="ERROR")
        at = datetime.now(UTC).replace(hour=12)
        arrays = add_arrays(options.arrays, options.jobs // options.arrays, at)
        add_failures(arrays, at)
        add_earlier(options.earlier, at)
        print(json.dumps(measure(at)))


def add_arrays(count: int, tasks: int, at: datetime) -> list["Submission"]:
    """Store a running request with arrays of every other job of a stage, which all failed."""
    from apps.clusters.models import Cluster
    from apps.production.models import Request
    from apps.submission.domain.arrays.submissions import write_ranges
    from apps.submission.models import Submission
    from tests.factories import people, requests

    nova = people.nova()
    stage = requests.stage(jobs=2 * count * tasks, memory_bytes=2 * GB, wall_seconds=8 * 3600)
    request = requests.request_in(
        "queued",
        by=people.liaison_of(nova),
        experiment=nova,
        approver=people.approver(),
        stages=(stage,),
    )
    Request.objects.filter(pk=request.pk).update(state="running")
    cluster = Cluster.objects.create(name="farm", scheduler="slurm", submits=True)
    arrays = []
    for number in range(count):
        first = 2 * number * tasks
        indices = write_ranges(range(first, first + 2 * tasks, 2))
        array = Submission(
            request=request,
            cluster=cluster,
            number=number + 1,
            position=0,
            stage_name=stage.name,
            first=first,
            tasks=tasks,
            indices=indices,
            state="sent",
            script="#!/bin/bash\n" + "echo of the script of a stage\n" * 30,
            script_sha256="0" * 64,
            due_at=at,
            sent_at=at - timedelta(hours=5),
            spool_id=f"{number + 1}",
            ended=tasks,
            failed_indices=indices,
            settled_at=at,
            created_at=at - timedelta(hours=6),
            created_by="opsportal",
        )
        arrays.append(array)
    Submission.objects.bulk_create(arrays)
    return arrays


def add_failures(arrays: list["Submission"], at: datetime) -> None:
    """Store the failed jobs of arrays with their verdicts, and the totals of their causes."""
    from apps.diagnosis.domain.causes.totals import recount_hours
    from apps.diagnosis.models import Verdict
    from apps.jobs.models import Job

    jobs = []
    verdicts = []
    failures = itertools.cycle(FAILURES)
    for array in arrays:
        for task in range(array.tasks):
            state, verdict, category, cause = next(failures)
            job = failed_job(array, task, state, at)
            jobs.append(job)
            verdicts.append((job, verdict, category, cause))
    Job.objects.bulk_create(jobs, batch_size=2000)

    rows = []
    for job, verdict, category, cause in verdicts:
        row = Verdict(
            job=job,
            experiment_id=job.experiment_id,
            ended_at=job.ended_at,
            verdict=verdict,
            machine_verdict=verdict,
            advice="retry",
            category=category,
            confidence="high",
            cause=cause,
            summary="Made up.",
            catalogue_version="1",
            decided_at=at,
        )
        rows.append(row)
    Verdict.objects.bulk_create(rows, batch_size=2000)
    for hour in {job.ended_at.replace(minute=0, second=0, microsecond=0) for job in jobs}:
        recount_hours(day=hour.replace(hour=0), hours=[hour])


def failed_job(array: "Submission", task: int, state: str, at: datetime) -> "Job":
    from apps.jobs.models import Job

    number = array.first + task
    return Job(
        cluster=array.cluster,
        job_id=f"{array.spool_id}_{task}",
        raw_id=1_000_000 + number,
        spool_id=array.spool_id,
        state=state,
        exit_code=1,
        submitted_at=array.sent_at,
        started_at=array.sent_at,
        ended_at=at - timedelta(seconds=number % 3600),
        host=f"wn-{number % 400}",
        cpus=1,
        wall_seconds=600,
        requested_memory_bytes=2 * GB,
        time_limit_seconds=8 * 3600,
        user="production",
        name="run",
        experiment=array.request.experiment,
        request_key=array.request.key,
        stage=array.stage_name,
        request=array.request,
        collected_at=at,
    )


def add_earlier(count: int, at: datetime) -> None:
    """Store decisions on other jobs of this day."""
    from apps.jobs.models import Job
    from apps.recovery.models import Decision
    from benchmarks.job_rows import Jobs

    filled = Jobs(at, days=1)
    filled.add(count)
    decisions = []
    for job in Job.objects.filter(cluster__in=filled.clusters):
        decision = Decision(
            job=job,
            experiment_id=job.experiment_id,
            arm="no-rule",
            failed_at=job.ended_at,
            decided_at=at,
            due_at=at,
        )
        decisions.append(decision)
    Decision.objects.bulk_create(decisions, batch_size=2000)


def measure(at: datetime) -> dict[str, object]:
    """Decide about all failed jobs."""
    from django.db import connection
    from django.db.models import Count

    from apps.recovery.domain.decisions.decide import decide_due, enrol_failures
    from apps.recovery.models import Decision, RecoveryRule

    RecoveryRule.objects.update(mode="active")
    with connection.cursor() as cursor:
        cursor.execute("VACUUM ANALYZE")

    started = time.perf_counter()
    cpu_started = time.process_time()
    while enrol_failures(at=at):
        pass
    jobs = 0
    batches = 0
    queries = QueryCount()
    with connection.execute_wrapper(queries):
        while decided := decide_due(at=at):
            jobs += decided
            batches += 1
    cpu_seconds = time.process_time() - cpu_started
    seconds = time.perf_counter() - started
    arms = Decision.objects.order_by().values_list("arm").annotate(Count("pk"))
    return {
        "jobs": jobs,
        "jobs_per_second": round(jobs / seconds),
        "jobs_per_cpu_second": round(jobs / cpu_seconds),
        "database_seconds": round(queries.seconds, 2),
        "queries_per_batch": round(queries.count / batches, 1),
        "arms": dict(arms),
        "load": os.getloadavg()[0],
    }


class QueryCount:
    """Counts queries, and the seconds that they take."""

    def __init__(self) -> None:
        self.count = 0
        self.seconds = 0.0

    def __call__(self, execute: Callable[..., Any], *arguments: Any) -> Any:
        self.count += 1
        started = time.perf_counter()
        result = execute(*arguments)
        self.seconds += time.perf_counter() - started
        return result


if __name__ == "__main__":
    main()
