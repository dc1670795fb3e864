"""Keyset pages: every row once, in order, whatever arrives meanwhile."""

import base64
from datetime import UTC, datetime, timedelta

import pytest
from django.db.models.functions import TruncDate
from django.http import QueryDict
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from apps.core.domain.pagination import in_order, newest_first
from apps.core.models import Heartbeat

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


@settings(
    max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(minutes=st.lists(st.integers(0, 3), max_size=12), size=st.integers(1, 5))
def test_pages_show_every_row_once_in_order(db, minutes, size):
    Heartbeat.objects.all().delete()
    Heartbeat.objects.bulk_create(
        Heartbeat(name=str(number), at=START + timedelta(minutes=minute))
        for number, minute in enumerate(minutes)
    )
    expected = list(Heartbeat.objects.order_by("-at", "-pk").values_list("pk", flat=True))
    assert walk(size) == expected


@settings(
    max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    names=st.lists(st.text("aB é1", min_size=1, max_size=2), max_size=8, unique=True),
    sign=st.sampled_from(["", "-"]),
)
def test_pages_in_another_order_show_every_row_once(db, names, sign):
    Heartbeat.objects.all().delete()
    Heartbeat.objects.bulk_create(
        Heartbeat(name=name, at=START + timedelta(days=len(name))) for name in names
    )
    rows = Heartbeat.objects.annotate(day=TruncDate("at"))
    for by in ("name", "day"):
        query, seen = QueryDict(), []
        while query is not None:
            page = in_order(rows, by=sign + by, query=query, size=2)
            seen += [row.pk for row in page.rows]
            query = QueryDict(page.next_query[1:]) if page.next_query else None
        assert seen == list(rows.order_by(sign + by, "-pk").values_list("pk", flat=True))


def test_unreadable_mark_shows_the_first_page(db):
    Heartbeat.objects.create(name="one", at=START)
    for mark in ("x", "WzFd", "bnVsbA==", "WyJ4IiwgMV0="):
        page = newest_first(Heartbeat.objects.all(), by="at", query=QueryDict(f"after={mark}"))
        assert [row.name for row in page.rows] == ["one"]
        assert page.is_first


def _mark(text):
    return base64.urlsafe_b64encode(text.encode()).decode()


@pytest.mark.parametrize(
    "mark",
    [
        "=",
        "[" * 3000,
        "[1, 2]",
        '["2026-01-01T00:00:00+00:00", 1e400]',
        '["2026-01-01T00:00:00+00:00", "x"]',
        '["0001-01-01T00:00:00+23:59", 1]',
        '["9999-12-31T23:59:59-23:59", 1]',
    ],
)
def test_mark_that_cannot_be_read_shows_the_first_page(db, mark):
    Heartbeat.objects.create(name="a", at=START)
    page = newest_first(Heartbeat.objects.all(), by="at", query=QueryDict(f"after={_mark(mark)}"))
    assert page.is_first
    assert len(page.rows) == 1


@pytest.mark.parametrize("cursor", ["p=abc", "p=", "p=1.5", "r=1&p=%FF", "p=" + "9" * 40])
def test_cursor_that_names_no_row_is_not_found(client, liaison, cursor):
    client.force_login(liaison)
    assert client.get("/api/v1/requests/", {"cursor": _mark(cursor)}).status_code == 404
