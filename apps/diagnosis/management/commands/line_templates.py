"""Store the templates of logs that were kept by an earlier version, or check their totals."""

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.utils import timezone

from apps.diagnosis.domain.reading.line_templates import harvests_without_templates, store_kept
from apps.search.domain.line_totals import recount_dirty_hours, wrong_hours


class Command(BaseCommand):
    help = (
        "Stores the templates of kept logs whose jobs have none, newest first, beside running "
        "work. It can be stopped, and started again. With --check, compares the totals by hour "
        "with a recount instead, and exits with 1 if any differs."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--check", action="store_true", help="Compare the totals.")

    def handle(self, *args: Any, **options: Any) -> None:
        if options["check"]:
            self._check()
            return
        total = harvests_without_templates().count()
        done = 0
        before = None
        while True:
            jobs, before = store_kept(before=before, at=timezone.now())
            done += jobs
            if before is None:
                break
            self.stdout.write(f"{done:,} of {total:,} jobs")
        while recount_dirty_hours():
            pass
        self.stdout.write(f"Stored the templates of {done:,} jobs.")

    def _check(self) -> None:
        hours = wrong_hours()
        for hour in hours:
            self.stdout.write(f"{hour:%Y-%m-%d %H:%M} UTC differs")
        if hours:
            raise CommandError(f"The totals of {len(hours)} hour{'s' * (len(hours) != 1)} differ.")
