"""Write the states of a request into docs/requests.md, from the table of transitions."""

from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser

from apps.production.domain.lifecycle.diagram import updated


class Command(BaseCommand):
    help = "Write the diagram of states in docs/requests.md anew; with --check, only tell whether it is stale."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--check", action="store_true")

    def handle(self, *args: Any, check: bool, **options: Any) -> None:
        page = Path(settings.BASE_DIR) / "docs" / "requests.md"
        old, new = updated(page)
        if check and old != new:
            raise CommandError("docs/requests.md is stale: run `python manage.py request_diagram`.")
        if not check:
            page.write_text(new)
