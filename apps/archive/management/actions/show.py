"""`archive show`: a job's script or environment, as it was stored."""

import sys
from argparse import ArgumentParser
from datetime import datetime
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from apps.archive.domain.store.contents import DamagedContent, newest_job, read_blob
from apps.archive.management.times import time_text, to_time

HELP = "write a job's script as it was stored"


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("job_id", metavar="JOB")
    parser.add_argument("--cluster", required=True)
    parser.add_argument("--environment", action="store_true", help="print the environment instead of the script")
    parser.add_argument(
        "--submitted-at", type=to_time, help="submit time, if the job ID was reused; default: the newest job"
    )


def run(
    command: BaseCommand, *, job_id: str, cluster: str, environment: bool, submitted_at: datetime | None, **_: Any
) -> None:
    job = newest_job(cluster=cluster, job_id=job_id, submitted_at=submitted_at)
    if job is None:
        when = f" submitted at {time_text(submitted_at)}" if submitted_at else ""
        raise CommandError(f"Job {job_id}{when} of cluster {cluster} is not in the archive.")
    try:
        content = read_blob(job.environment if environment else job.script)
    except DamagedContent as error:
        raise CommandError(f"Job {job_id} of cluster {cluster} is damaged in the archive: it {error}") from error
    sys.stdout.buffer.write(content)
    sys.stdout.buffer.flush()
