"""Compare the totals by cause and group with a recount of the verdicts."""

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from apps.diagnosis.domain.causes.totals import recount_hours, wrong_hours
from apps.jobs.domain.records.conversion import day_of


class Command(BaseCommand):
    help = (
        "Compares the hourly and daily totals of failures with a recount. Exits with 1 if any "
        "differs."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--fix", action="store_true", help="Store the recount of hours that differ."
        )

    def handle(self, *args: Any, **options: Any) -> None:
        hours = wrong_hours()
        for hour in hours:
            self.stdout.write(f"{hour:%Y-%m-%d %H:%M} UTC differs")
            if options["fix"]:
                recount_hours(day=day_of(hour), hours=[hour])
        if hours and not options["fix"]:
            raise CommandError(
                f"{len(hours)} hour{'s' * (len(hours) != 1)} differ. Run with --fix to recount."
            )
