"""The number of queries of every page and route of production is the same for few rows and for
many.
"""

from datetime import UTC, datetime
from typing import Any

import pytest
from django.contrib import admin
from django.db import connection

from benchmarks.production_rows import STATES, Filler
from benchmarks.production_visits import Tour, Visit

SAVEPOINTS = ("SAVEPOINT", "RELEASE")


@pytest.fixture(autouse=True)
def quick(monkeypatch) -> None:
    """Leave out the list of all models and the count of unread notifications, a thousand times.

    `tests/production/test_admin_lists.py` counts the queries of pages with the first, and the page
    of notifications here has its own count, a sixth of the time of other pages.
    """
    monkeypatch.setattr("apps.portal.web.context.unread_count", lambda user: 0)
    monkeypatch.setattr(admin.site, "get_app_list", lambda request, app_label=None: [])


def counts(tour: Tour) -> dict[tuple[str, str, str], int]:
    """Return how many queries each visit takes that is answered with a page."""
    numbers: dict[tuple[str, str, str], int] = {}
    asked: list[str] = []

    def note(execute: Any, sql: str, *rest: Any) -> Any:
        asked.append(sql)
        return execute(sql, *rest)

    def ask(visit: Visit) -> Any:
        asked.clear()
        response = visit.ask()
        numbers[visit.key] = sum(not sql.startswith(SAVEPOINTS) for sql in asked)
        return response

    with connection.execute_wrapper(note):
        return {visit.key: numbers[visit.key] for visit in tour.visits(ask)}


def grown(few: dict[Any, int], many: dict[Any, int]) -> dict[Any, tuple[int, int]]:
    return {
        key: (count, many[key]) for key, count in few.items() if key in many and many[key] > count
    }


@pytest.mark.slow
@pytest.mark.parametrize(
    ("role", "only", "least"), [("liaison", "", 50), ("approver", "", 50), ("admin", "admin:", 50)]
)
def test_queries_do_not_grow_with_rows(db, role, only, least):
    filler = Filler(at=datetime.now(UTC), stages=2, experiments=3)
    filler.add(len(STATES))
    few = counts(Tour(roles=(role,), only=only, brief=True))
    filler.stages, filler.size = 5, 3
    filler.add(2 * len(STATES))
    many = counts(Tour(roles=(role,), only=only, brief=True, newest=True, among=few.keys()))
    if again := grown(few, many):  # what is read once in the life of a process is not read again
        many |= counts(Tour(roles=(role,), only=only, brief=True, newest=True, among=again.keys()))
    assert grown(few, many) == {}
    assert len(few.keys() & many.keys()) >= least
