"""Write the tables in docs/ that come from code: states, rules of checks, kinds of events."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser

from apps.core.domain.event_kinds import EventKind, declared_kinds
from apps.core.enums import Audience, Group
from apps.notifications.enums import DEFAULTS, Channel
from apps.production.domain.documentation import rule_tables, state_diagram


def event_table() -> Iterator[str]:
    """Yield all kinds of events as lines of a Markdown table."""
    yield "| kind | timeline | notification | who is notified |"
    yield "| --- | --- | --- | --- |"
    for kind in declared_kinds():
        phrases = " / ".join([kind.predicate, *kind.predicate_for.values()])
        yield f"| `{kind.name}` | {kind.did} | {phrases} | {_audiences(kind)} |"


def _audiences(kind: EventKind) -> str:
    """Return who is notified in which group: `turn: signers; progress: requester, watchers`."""
    return "; ".join(
        f"{group.value}: {', '.join(names)}" for group in Group if (names := _notified(kind, group))
    )


def _notified(kind: EventKind, group: Group) -> list[str]:
    notified = []
    for audience in Audience:
        if kind.notifies.get(audience) == group:
            notified.append(audience.value)
    return notified


def group_table() -> Iterator[str]:
    """Yield the groups of notifications as lines of a Markdown table."""
    yield "| group | events | mail, unless you choose otherwise |"
    yield "| --- | --- | --- |"
    for group in Group:
        phrases: list[str] = []
        for kind in declared_kinds():
            phrases += _phrases(kind, group)
        yield (
            f"| {group.label.partition(':')[0]} | {'; '.join(phrases)} | "
            f"{DEFAULTS[Channel.MAIL, group].label} |"
        )


def _phrases(kind: EventKind, group: Group) -> Iterator[str]:
    """Yield the phrases of an event in a group.

    The audience is added unless it includes the requester: `was submitted (liaisons)`.
    """
    names = [name for name in _notified(kind, group) if name != Audience.WATCHERS]
    if names:
        only = "" if Audience.REQUESTER in names else f" ({', '.join(names)})"
        for phrase in (kind.predicate, *kind.predicate_for.values()):
            yield phrase + only


#: Functions that yield lines, by page and by the name in the markers `<!-- begin: NAME -->` and
#: `<!-- end: NAME -->`.
TABLES = {
    ("requests.md", "states"): state_diagram,
    ("checks.md", "rules"): rule_tables,
    ("events.md", "events"): event_table,
    ("notifications.md", "groups"): group_table,
}


class Command(BaseCommand):
    help = (
        "Update the tables in docs/ that are written from the code; with --check, only report a "
        "stale page."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--check", action="store_true")

    def handle(self, *args: Any, check: bool, **options: Any) -> None:
        for (name, mark), lines in TABLES.items():
            page = Path(settings.BASE_DIR, "docs", name)
            begin = f"<!-- begin: {mark} -->"
            end = f"<!-- end: {mark} -->"
            old = page.read_text()
            before, _, following = old.partition(begin)
            new = before + "\n".join([begin, *lines(), end]) + following.partition(end)[2]
            if check and old != new:
                raise CommandError(f"docs/{name} is stale: run `python manage.py write_docs`.")
            if old != new:
                page.write_text(new)
