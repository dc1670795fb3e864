"""`archive list`: a JSON object a line for each job."""

import json
import sys
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand

from apps.archive.domain.store.contents import jobs_in_order
from apps.archive.management.times import time_text

HELP = "print a JSON object a line for each job"


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--cluster", required=True)


def run(command: BaseCommand, *, cluster: str, **_: Any) -> None:
    for job in jobs_in_order(cluster=cluster):
        line = {
            "job_id": job.job_id,
            "submitted_at": time_text(job.submitted_at),
            "script_sha256": job.script_sha256,
            "environment_sha256": job.environment_sha256,
            "script_bytes": job.script_bytes,
            "environment_bytes": job.environment_bytes,
            "captured_at": time_text(job.captured_at),
            "request": job.request_key,
            "stage": job.stage,
            "masked": job.masked_names,
        }
        sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()
