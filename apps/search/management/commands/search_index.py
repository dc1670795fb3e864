"""`manage.py search_index`: how far the index of logs is, and fill it again."""

import time
from typing import Any

from django.core.management.base import BaseCommand, CommandParser
from django.utils import timezone

from apps.search.domain.logs.word_index import index_kept_logs, is_complete, rebuild_index
from apps.search.models import LogWords


class Command(BaseCommand):
    help = "Show how many logs are in the index of the search; --rebuild fills it again."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--rebuild", action="store_true", help="fill it again from what is kept of the logs"
        )

    def handle(self, *_: Any, **options: Any) -> None:
        if options["rebuild"]:
            rebuild_index()
            indexed = 0
            while not is_complete():
                count = index_kept_logs(batches=10, at=timezone.now())
                indexed += count
                self.stdout.write(f"{indexed:,} logs indexed")
                if not count:
                    # A worker has the next batch.
                    time.sleep(1)
        state = "complete" if is_complete() else "older logs are being added"
        self.stdout.write(f"{LogWords.objects.count():,} logs in the index: {state}")
