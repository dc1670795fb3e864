"""Keyset pages: every row once, in order, whatever arrives meanwhile."""

from datetime import UTC, datetime, timedelta

from django.http import QueryDict
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from apps.core.models import Heartbeat
from apps.core.pagination import newest_first

START = datetime(2026, 1, 1, tzinfo=UTC)


def walk(size):
    query, seen = QueryDict("cluster=x"), []
    while True:
        page = newest_first(Heartbeat.objects.all(), by="at", query=query, size=size)
        seen += [row.pk for row in page.rows]
        if not page.next_query:
            return seen
        assert "cluster=x" in page.next_query
        query = QueryDict(page.next_query[1:])


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(minutes=st.lists(st.integers(0, 3), max_size=12), size=st.integers(1, 5))
def test_pages_show_every_row_once_in_order(db, minutes, size):
    Heartbeat.objects.all().delete()
    for number, minute in enumerate(minutes):
        Heartbeat.objects.create(name=str(number), at=START + timedelta(minutes=minute))
    expected = list(Heartbeat.objects.order_by("-at", "-pk").values_list("pk", flat=True))
    assert walk(size) == expected


def test_unreadable_mark_shows_the_first_page(db):
    Heartbeat.objects.create(name="one", at=START)
    for mark in ("x", "WzFd", "bnVsbA==", "WyJ4IiwgMV0="):
        page = newest_first(Heartbeat.objects.all(), by="at", query=QueryDict(f"after={mark}"))
        assert [row.name for row in page.rows] == ["one"]
        assert page.is_first
