"""Write the kinds of events into docs/events.md and docs/notifications.md, from their declarations."""

from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser

from apps.notifications.domain.event_pages import updated_pages


class Command(BaseCommand):
    help = "Update the tables of events in the documentation; with --check, only report whether they are stale."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--check", action="store_true")

    def handle(self, *args: Any, check: bool, **options: Any) -> None:
        for page, (old, new) in updated_pages(Path(settings.BASE_DIR) / "docs").items():
            if check and old != new:
                raise CommandError(f"docs/{page.name} is stale: run `python manage.py event_kinds`.")
            if not check:
                page.write_text(new)
