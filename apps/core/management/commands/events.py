"""`manage.py events`: export the audit trail."""

import json
from argparse import ArgumentParser, ArgumentTypeError
from contextlib import nullcontext
from datetime import datetime
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.core.serializers.json import DjangoJSONEncoder
from django.utils import timezone
from django.utils.dateparse import parse_datetime

from apps.core.domain.event_kinds import declared_kinds
from apps.core.domain.events import exported_events
from apps.core.management.files import open_new_file


class Command(BaseCommand):
    help = "Export the audit trail."

    def add_arguments(self, parser: ArgumentParser) -> None:
        verbs = parser.add_subparsers(dest="verb", required=True)
        export = verbs.add_parser("export", help="write events, oldest first, in JSON Lines")
        export.add_argument("--after", type=int, default=0, metavar="ID", help="only later IDs")
        export.add_argument(
            "--since", type=_moment, metavar="TIME", help="a date, or date and time"
        )
        export.add_argument("--until", type=_moment, metavar="TIME", help="before this time")
        export.add_argument("--kind", action="append", default=[], help="may be repeated")
        export.add_argument("--people", action="store_true", help="without those by the portal")
        export.add_argument("--file", type=Path, help="a new file; without it, standard output")

    def handle(self, *args: Any, **options: Any) -> None:
        known = {kind.name for kind in declared_kinds()}
        for kind in options["kind"]:
            if kind not in known:
                raise CommandError(f"There is no kind of events named {kind}: see docs/events.md.")
        events = exported_events(
            at=timezone.now(),
            after=options["after"],
            since=options["since"],
            until=options["until"],
            kinds=options["kind"],
            only_people=options["people"],
        )
        count = 0
        path = options["file"]
        with open_new_file(path) if path else nullcontext(self.stdout) as output:
            for event in events:
                output.write(json.dumps(event, cls=DjangoJSONEncoder) + "\n")
                count += 1
        if path:
            self.stdout.write(f"{count} events are in {path}.")


def _moment(text: str) -> datetime:
    """Return a time of the portal's zone from `2026-11-30` or `2026-11-30T12:00`."""
    try:
        moment = parse_datetime(text)
    except ValueError as error:
        raise ArgumentTypeError(f"{text}: {error}") from error
    if moment is None:
        raise ArgumentTypeError(f"{text} is no time: write 2026-11-30 or 2026-11-30T12:00")
    return moment if timezone.is_aware(moment) else timezone.make_aware(moment)
