"""`manage.py search`: how far the index of logs is, fill it again, compare it with the logs."""

import time
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.utils import timezone

from apps.search.domain.engine.base import SearchUnavailable
from apps.search.domain.engine.chosen import engine_in_use
from apps.search.domain.indexing.fill import index_kept_logs, is_being_built, rebuild_index
from apps.search.domain.indexing.new_logs import logs_waiting
from apps.search.domain.indexing.verification import compare_index
from apps.search.domain.logs.index_state import indexes_of

#: Differences that are listed; all are counted.
SHOWN = 100
_PROGRESS_EVERY = 10_000


class Command(BaseCommand):
    help = "Show the index of logs, rebuild it from what is kept, or compare it with that."

    def add_arguments(self, parser: CommandParser) -> None:
        commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
        commands.add_parser("status", help="show which indexes there are, and how far they are")
        commands.add_parser(
            "rebuild",
            help="fill a new index beside the one in use, which it replaces when it is full; run "
            "again, it goes on",
        )
        commands.add_parser(
            "verify", help="name logs that differ in the index; exit status 1 if there are any"
        )

    def handle(self, *_: Any, **options: Any) -> None:
        actions = {"status": self._status, "rebuild": self._rebuild, "verify": self._verify}
        try:
            actions[options["command"]]()
        except SearchUnavailable as error:
            raise CommandError(error.reason) from None

    def _status(self) -> None:
        target = engine_in_use().name
        for index in indexes_of(target):
            state = "in use" if index.serving else "being built"
            if not index.complete:
                state += f", {index.indexed:,} logs added, older ones are being added"
            if index.last_error:
                state += f", does not answer: {index.last_error}"
            self.stdout.write(f"{target}, index {index.generation}: {state}")
        waiting = logs_waiting(at_most=1_000_000)
        self.stdout.write(f"{waiting:,} new logs wait to be indexed")

    def _rebuild(self) -> None:
        index = rebuild_index()
        while is_being_built(index):
            if not index_kept_logs(batches=10, at=timezone.now()):
                # A worker has the next batch.
                time.sleep(1 if is_being_built(index) else 0)
            index.refresh_from_db()
            self.stdout.write(f"{index.indexed:,} logs indexed")
        self.stdout.write(f"index {index.generation} is in use")

    def _verify(self) -> None:
        compared = 0
        differences = 0
        shown_at = 0
        for batch in compare_index():
            compared += batch.count
            for job, reason in batch.wrong.items():
                differences += 1
                if differences <= SHOWN:
                    self.stdout.write(f"job {job}: {reason}")
            if compared >= shown_at + _PROGRESS_EVERY:
                shown_at = compared
                self.stdout.write(f"{compared:,} logs compared")
        self.stdout.write(f"{compared:,} logs compared, {differences:,} differences")
        if differences:
            raise CommandError("The index differs from the logs: manage.py search rebuild")
