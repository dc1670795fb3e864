"""Write the tables of docs/ that come from code: states, rules of the checks, kinds of events."""

from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser

from apps.notifications.domain.event_pages import event_table, group_table
from apps.production.domain.documentation import rule_tables, state_diagram

#: Writers of lines, by the page and the name in the markers `<!-- begin: NAME -->` and `<!-- end: NAME -->`.
TABLES = {
    ("requests.md", "states"): state_diagram,
    ("checks.md", "rules"): rule_tables,
    ("events.md", "events"): event_table,
    ("notifications.md", "groups"): group_table,
}


class Command(BaseCommand):
    help = "Update the tables in docs/ that are written from the code; with --check, only report a stale page."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--check", action="store_true")

    def handle(self, *args: Any, check: bool, **options: Any) -> None:
        for (name, mark), lines in TABLES.items():
            page, begin, end = Path(settings.BASE_DIR, "docs", name), f"<!-- begin: {mark} -->", f"<!-- end: {mark} -->"
            old = page.read_text()
            before, _, rest = old.partition(begin)
            new = before + "\n".join([begin, *lines(), end]) + rest.partition(end)[2]
            if check and old != new:
                raise CommandError(f"docs/{name} is stale: run `python manage.py write_docs`.")
            if old != new:
                page.write_text(new)
