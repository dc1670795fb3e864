"""`manage.py archive`: list, show and verify what is archived, the same for every scheduler and sink."""

import json
import os
import sys
from argparse import ArgumentParser
from datetime import UTC, datetime
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from apps.archive.selectors import (
    DamagedContent,
    damaged_blobs,
    jobs_in_order,
    jobs_with,
    newest_job,
    read_blob,
    wrong_sizes,
)


class Command(BaseCommand):
    """Reads only."""

    help = "List, show and verify archived jobs."
    requires_system_checks = ()

    def add_arguments(self, parser: ArgumentParser) -> None:
        actions = parser.add_subparsers(dest="action", required=True)
        listing = actions.add_parser("list", help="print a JSON object a line for each job")
        listing.add_argument("--cluster", required=True)
        show = actions.add_parser("show", help="write a job's script as it was stored")
        show.add_argument("job_id", metavar="JOB")
        show.add_argument("--cluster", required=True)
        show.add_argument("--environment", action="store_true", help="write its environment instead")
        show.add_argument("--submitted-at", type=_time, help="which job, where the id was used again; else the newest")
        verify = actions.add_parser("verify", help="recompute every hash and size")
        verify.add_argument("--cluster", default="")

    def handle(self, *, action: str, **options: Any) -> None:
        try:
            getattr(self, f"_{action}")(**options)
        except BrokenPipeError:  # the reader, such as `head`, has enough
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())

    def _list(self, *, cluster: str, **_: Any) -> None:
        for job in jobs_in_order(cluster=cluster):
            line = {
                "job_id": job.job_id,
                "submitted_at": _text(job.submitted_at),
                "script_sha256": job.script_sha256,
                "environment_sha256": job.environment_sha256,
                "script_bytes": job.script_bytes,
                "environment_bytes": job.environment_bytes,
                "captured_at": _text(job.captured_at),
                "request": job.request_key,
                "stage": job.stage,
                "masked": job.masked_names,
            }
            sys.stdout.write(json.dumps(line) + "\n")
        sys.stdout.flush()

    def _show(self, *, job_id: str, cluster: str, environment: bool, submitted_at: datetime | None, **_: Any) -> None:
        job = newest_job(cluster=cluster, job_id=job_id, submitted_at=submitted_at)
        if job is None:
            when = f" submitted at {_text(submitted_at)}" if submitted_at else ""
            raise CommandError(f"No job {job_id}{when} of cluster {cluster} is in the archive.")
        try:
            content = read_blob(job.environment if environment else job.script)
        except DamagedContent as error:
            raise CommandError(f"Job {job_id} of cluster {cluster} is damaged in the archive: it {error}") from error
        sys.stdout.buffer.write(content)
        sys.stdout.buffer.flush()

    def _verify(self, *, cluster: str, **_: Any) -> None:
        differences = 0
        for blob, difference in damaged_blobs(cluster=cluster):
            differences += 1
            users = ", ".join(str(job) for job in jobs_with(blob)[:5])
            self.stderr.write(f"{blob.kind} {blob} {difference} (jobs: {users or 'none'})")
        for job in wrong_sizes(cluster=cluster):
            differences += 1
            self.stderr.write(f"job {job}: its sizes are not those of its contents")
        if differences:
            raise CommandError(f"{differences} differences.")
        self.stdout.write("Every content is as it was stored.")


def _time(text: str) -> datetime:
    moment = datetime.fromisoformat(text)
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _text(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat()
