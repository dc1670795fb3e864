"""`archive retain`: delete what the rules of retention keep no longer, as is done every day."""

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand
from django.utils import timezone

from apps.archive.domain.retention import delete_expired, excesses

HELP = "delete jobs that the rules of retention keep no longer"
_BATCHES = 1_000


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--dry-run", action="store_true", help="only print what would be deleted")


def run(command: BaseCommand, *, dry_run: bool, **_: Any) -> None:
    at = timezone.now()
    for excess in excesses(at=at):
        command.stdout.write(
            f"{excess.cluster}: {excess.size_bytes} bytes of contents;"
            f" {excess.too_old} jobs are too old, about {excess.for_size} of the oldest too much for the size"
        )
    if not dry_run:
        deleted = 0
        while more := delete_expired(by="archive retain", at=at, batches=_BATCHES):
            deleted += more
        command.stdout.write(f"deleted {deleted} jobs")
