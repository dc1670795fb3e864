"""Ask the engines, page by page as the API does, and `grep`."""

import subprocess
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from apps.search.api.views import SIZE
from apps.search.domain.engine.base import Cursor, Engine, SearchScope
from apps.search.domain.query.parser import parse
from benchmarks.search_questions.world import Text

#: Place of a hit: its time, source and primary key.
Order = tuple[datetime, str, int]


def ask(engine: Engine, text: str, scope: SearchScope) -> tuple[list[Order], int]:
    """Return all hits in the order of the pages, and the number of pages."""
    query = parse(text)
    orders: list[Order] = []
    pages = 0
    after: Cursor | None = None
    while True:
        hits = engine.search(query, scope, after=after, size=SIZE)
        orders += [(hit.at, hit.source.value, hit.key) for hit in hits.rows]
        pages += 1
        if hits.after is None:
            return orders, pages
        # A page gets it as a part of the address.
        after = Cursor.of(str(hits.after))


class Grep:
    """The texts as files, for `grep`."""

    def __init__(self, directory: Path, texts: Sequence[Text]) -> None:
        self._directory = directory
        self._orders: dict[str, Order] = {}
        for number, text in enumerate(texts):
            (directory / str(number)).write_bytes(text.data)
            self._orders[str(number)] = text.order

    def hits(self, phrase: str) -> list[Order]:
        """Return the texts with a phrase, newest first."""
        grep = subprocess.run(
            ["grep", "-rlaiF", "-e", phrase, "."],
            cwd=self._directory,
            env={"LC_ALL": "C.UTF-8", "PATH": "/usr/bin:/bin"},
            capture_output=True,
            text=True,
            check=False,
        )
        if grep.returncode > 1:
            raise RuntimeError(grep.stderr)
        names = [Path(line).name for line in grep.stdout.splitlines()]
        return sorted((self._orders[name] for name in names), reverse=True)


def member_of(key: str) -> Any:
    """Return a user who sees one experiment."""
    from apps.accounts.enums import Role
    from apps.accounts.models import Experiment, Membership, User

    user, _ = User.objects.get_or_create(username=f"member-{key.lower()}")
    experiment = Experiment.objects.get(key=key)
    Membership.objects.get_or_create(user=user, role=Role.LIAISON, experiment=experiment)
    return user
