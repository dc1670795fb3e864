"""Write the rules of the checks into docs/checks.md, from their registry."""

from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser

from apps.production.domain.checks.documentation import updated


class Command(BaseCommand):
    help = "Write the tables of rules in docs/checks.md anew; with --check, only tell whether they are stale."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--check", action="store_true")

    def handle(self, *args: Any, check: bool, **options: Any) -> None:
        page = Path(settings.BASE_DIR) / "docs" / "checks.md"
        old, new = updated(page)
        if check and old != new:
            raise CommandError("docs/checks.md is stale: run `python manage.py request_rules`.")
        if not check:
            page.write_text(new)
