"""`manage.py jobs`: list, archive, drop and restore months of job records."""

from argparse import ArgumentParser, ArgumentTypeError
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.utils import timezone

from apps.core.errors import InvalidTransition
from apps.jobs.domain.months.archive import archive_month, copy_months, restore_month
from apps.jobs.domain.months.retention import drop_month, list_months
from apps.jobs.domain.months.stores.base import file_name
from apps.jobs.domain.months.stores.chosen import job_archive
from apps.jobs.domain.months.stores.directory import Directory


class Command(BaseCommand):
    help = (
        "List the months of job records; archive one as Parquet, drop it once archived, "
        "restore it, or copy archives to another place."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parts = parser.add_subparsers(dest="part", required=True)
        parts.add_parser(
            "months",
            help="list the months: their records, archives, and which are due to be dropped",
        )
        archive = parts.add_parser(
            "archive", help="archive a month, and verify that; its records stay"
        )
        drop = parts.add_parser(
            "drop", help="archive a month, verify that, and delete its records; totals stay"
        )
        drop.add_argument(
            "--dry-run", action="store_true", help="say what would be deleted, and change nothing"
        )
        restore = parts.add_parser("restore", help="put the records of a dropped month back")
        for part in (archive, drop, restore):
            part.add_argument("month", type=_month, help="2026-03")
        copy = parts.add_parser(
            "copy", help="copy archived months from a directory to JOB_ARCHIVE, which has moved"
        )
        copy.add_argument("directory", type=Path)

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            getattr(self, f"_{options['part']}")(**options)
        except (InvalidTransition, OSError) as error:
            raise CommandError(str(error)) from error

    def _months(self, **options: Any) -> None:
        for month in list_months(at=timezone.now()):
            state = "due" if month.is_due else ""
            archived = month.archived
            if archived and archived.dropped_at:
                state = f"{archived.jobs:,} archived, dropped {archived.dropped_at:%Y-%m-%d}"
            elif archived and archived.restored_at:
                state = f"restored {archived.restored_at:%Y-%m-%d}"
            self.stdout.write(f"{month.month:%Y-%m}  {month.jobs:>12,} jobs  {state}".rstrip())

    def _archive(self, month: date, **options: Any) -> None:
        manifest = archive_month(month=month, at=timezone.now())
        place = job_archive().place(month)
        for name, content in manifest.tables.items():
            self.stdout.write(f"{place}/{file_name(name)}: {content.rows:,} rows")

    def _drop(self, month: date, **options: Any) -> None:
        if options["dry_run"]:
            jobs = sum(
                listed.jobs for listed in list_months(at=timezone.now()) if listed.month == month
            )
            self.stdout.write(f"would archive and delete {jobs:,} jobs; nothing was changed")
            return
        deleted = drop_month(month=month, by="manage.py jobs", at=timezone.now())
        self.stdout.write(f"{deleted:,} jobs deleted; archived in {job_archive().place(month)}")

    def _restore(self, month: date, **options: Any) -> None:
        restored = restore_month(month=month, by="manage.py jobs", at=timezone.now())
        self.stdout.write(f"{restored:,} jobs restored")

    def _copy(self, directory: Path, **options: Any) -> None:
        if not directory.is_dir():
            raise CommandError(f"{directory} is no directory.")
        count = 0
        for month in copy_months(Directory(directory)):
            count += 1
            self.stdout.write(f"{month:%Y-%m} copied to {job_archive().place(month)}")
        self.stdout.write(f"{count} months copied")


def _month(text: str) -> date:
    try:
        return datetime.strptime(text, "%Y-%m").replace(tzinfo=UTC).date()
    except ValueError as error:
        raise ArgumentTypeError(f"{text!r} is not a month: 2026-03") from error
