"""`archive verify`: every content against its hash and size."""

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from apps.archive.domain.store.contents import damaged_blobs, jobs_with, wrong_sizes

HELP = "recompute every hash and size"


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--cluster", default="")


def run(command: BaseCommand, *, cluster: str, **_: Any) -> None:
    differences = 0
    for blob, difference in damaged_blobs(cluster=cluster):
        differences += 1
        users = ", ".join(str(job) for job in jobs_with(blob)[:5])
        command.stderr.write(f"{blob.kind} {blob} {difference} (jobs: {users or 'none'})")
    for job in wrong_sizes(cluster=cluster):
        differences += 1
        command.stderr.write(f"job {job}: its sizes are not those of its contents")
    if differences:
        raise CommandError(f"{differences} differences found.")
    command.stdout.write("Every content is as it was stored.")
