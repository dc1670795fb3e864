"""Questions to the statistics, put together in the browser."""

from datetime import timedelta

import pytest
from django.utils import timezone
from playwright.sync_api import expect

from apps.jobs.domain.totals.rollups import recompute_dirty_hours
from tests.browser.conftest import broken_words
from tests.factories import clusters
from tests.factories.jobs import record, store

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def counted_jobs(nova):
    """Two jobs of NOvA on two hosts, of the last hours."""
    now = timezone.now()
    ended_at = now - timedelta(hours=2)
    cluster = clusters.cluster("alps")
    store(
        cluster,
        record(1, ended_at=ended_at, host="wn1"),
        record(2, ended_at=ended_at, host="wn2"),
        at=now,
    )
    recompute_dirty_hours(at=now)


@pytest.mark.parametrize("width", [1280, 390])
def test_words_of_the_heat_map_are_whole(nova, shifter, open_as, width):
    now = timezone.now()
    records = []
    for number in range(14):
        ended_at = now - timedelta(hours=2)
        name = f"worker-{number}"
        records.append(record(number, ended_at=ended_at, host=name, user=f"user-{number % 4}"))
    store(clusters.cluster("alps"), *records, at=now)
    recompute_dirty_hours(at=now)
    page = open_as(shifter, width=width)
    page.goto("/statistics/?measure=jobs&by=user,host&period=24h")
    expect(page.locator(".heat").first).to_be_visible()
    assert broken_words(page) == []


@pytest.mark.parametrize("javascript", [True, False], ids=["javascript", "no javascript"])
def test_filter_is_added_and_removed(counted_jobs, shifter, open_as, javascript):
    page = open_as(shifter, javascript=javascript)
    page.goto("/statistics/?measure=jobs&by=host&period=24h")
    for dimension, value in (("host", "wn1"), ("experiment", "NOVA")):
        page.get_by_text("+ filter").click()
        page.get_by_label("Filter by").select_option(dimension)
        page.get_by_label("Value", exact=True).fill(value)
        page.get_by_role("button", name="Show").click()
        expect(page.get_by_role("link", name=f"Remove filter {dimension}")).to_be_visible()
    expect(page.locator("main")).to_contain_text("1 job")
    page.get_by_role("link", name="Remove filter host").click()
    expect(page.locator("main")).to_contain_text("2 jobs")
