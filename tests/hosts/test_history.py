"""The history of a host: spans of its states from looks, beside exclusions and failed jobs."""

from datetime import UTC, datetime, timedelta

import pytest
from django.urls import reverse
from django.utils.html import strip_tags
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.django import TestCase

from apps.clusters.models import Host
from apps.hosts.domain.history import (
    KEPT,
    Look,
    follow_host_states,
    forget_host_spans,
    store_looks,
)
from apps.hosts.models import HostExclusion, HostSpan
from apps.jobs.domain.totals.rollups import recompute_dirty_hours
from apps.jobs.models import Job
from tests.factories import clusters
from tests.factories.jobs import failed, record, store
from tests.pages import page_of

AT = datetime(2026, 11, 20, 12, tzinfo=UTC)
QUARTER = timedelta(minutes=15)
HOUR = timedelta(hours=1)
BOOT = AT - timedelta(days=3)
LOOKS = st.builds(
    Look,
    state=st.sampled_from(["up", "down"]),
    reason=st.sampled_from(["", "disk"]),
    booted_at=st.sampled_from([None, BOOT, BOOT + timedelta(seconds=3), BOOT + HOUR]),
)
#: A look at three hosts, some of which it lacks; None is a look that failed.
HOSTS = st.none() | st.dictionaries(st.sampled_from(["wn1", "wn2", "wn3"]), LOOKS)


def recount(looks, host):
    """Return the spans of a host from all looks, by time: state, reason, since, seen, until."""
    spans = []
    booted_at = None
    for at, found in looks:
        if host not in found:
            continue
        look = found[host]
        boot = look.booted_at
        rebooted = bool(booted_at and boot and boot - booted_at > timedelta(minutes=2))
        if booted_at is None or rebooted:
            booted_at = boot or booted_at
        same = bool(spans) and spans[-1][:2] == [look.state, look.reason]
        if same and not rebooted:
            spans[-1][3] = at
            continue
        if spans:
            spans[-1][4] = at
        spans.append([look.state, look.reason, at, at, None, rebooted])
    return spans


class AnyOrderOfLooks(TestCase):
    @settings(max_examples=30, deadline=None)
    @given(st.lists(st.tuples(st.integers(0, 12), HOSTS), max_size=14))
    def test_any_order_of_looks_gives_the_spans_of_a_recount(self, taken):
        cluster = clusters.cluster("farm")
        accepted = []
        newest = -1
        for step, found in taken:
            at = AT + step * QUARTER
            if not found:  # It failed, or had no hosts: nothing is stored.
                continue
            store_looks(cluster=cluster, looks=found, at=at)
            if step > newest:  # A look that comes late, or twice, changes nothing.
                accepted.append((at, found))
                newest = step
        for host in ("wn1", "wn2", "wn3"):
            rows = HostSpan.objects.filter(cluster=cluster, host=host).order_by("since")
            stored = rows.values_list("state", "reason", "since", "seen_at", "until", "rebooted")
            assert [list(row) for row in stored] == recount(accepted, host)


@pytest.fixture
def farm(db):
    return clusters.cluster("farm")


def test_listing_becomes_spans_and_a_failed_listing_closes_nothing(farm):
    host = Host.objects.create(
        cluster=farm, name="wn1.example.org", state="up", state_words="IDLE", listed_at=AT
    )
    Host.objects.create(cluster=farm, name="wn2", listed_at=AT)  # of a scheduler without states
    assert [follow_host_states(), follow_host_states()] == [1, 0]

    Host.objects.filter(pk=host.pk).update(
        state="drained", state_words="IDLE+DRAIN", reason="disk", listed_at=AT + QUARTER
    )
    assert [follow_host_states(), follow_host_states()] == [1, 0]
    newest, first = HostSpan.objects.all()
    assert (first.host, first.until, first.seen_at) == ("wn1", AT + QUARTER, AT)
    assert (newest.state, newest.words, newest.reason) == ("drained", "IDLE+DRAIN", "disk")
    assert newest.until is None

    assert forget_host_spans(at=AT + KEPT) == 0
    assert forget_host_spans(at=AT + KEPT + HOUR) == 1


def words_of(page):
    return " ".join(strip_tags(page).split())


def span(cluster, state, *, since, until=None, seen_at=None, **fields):
    return HostSpan.objects.create(
        cluster=cluster,
        host="wn1",
        state=state,
        since=since,
        until=until,
        seen_at=seen_at or (until - QUARTER if until else since),
        **fields,
    )


def test_page_shows_states_exclusions_reboots_and_failures(
    client, farm, nova, shifter, monkeypatch, django_assert_max_num_queries
):
    monkeypatch.setattr("django.utils.timezone.now", lambda: AT)
    ended_at = AT - 5 * HOUR + timedelta(minutes=10)
    store(farm, record(1, host="wn1", ended_at=ended_at), failed(2, host="wn1", ended_at=ended_at))
    Job.objects.update(experiment=nova)
    recompute_dirty_hours(at=AT)
    span(farm, "up", since=AT - 6 * HOUR, until=AT - 4 * HOUR, words="IDLE")
    hostile = "<script>alert(1)</script> Reason=x"
    span(farm, "down", since=AT - 4 * HOUR, until=AT - 2 * HOUR, words="DOWN*", reason=hostile)
    span(
        farm,
        "up",
        since=AT - 2 * HOUR,
        words="IDLE",
        rebooted=True,
        booted_at=AT - 2 * HOUR - QUARTER,
    )
    HostExclusion.objects.create(
        cluster=farm,
        host="wn1",
        reason="It eats jobs",
        by="shifty",
        started_at=AT - 3 * HOUR,
        expires_at=AT - HOUR,
    )

    address = reverse("hosts:history", args=["wn1"])
    page = page_of(client, shifter, address)
    text = words_of(page)
    order = [text.index(words) for words in ("booted", "It eats jobs", "DOWN*")]
    assert order == sorted(order)
    assert "1 of 2 50 %" in text
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    assert "<script>alert(1)" not in page
    assert "unknown since" in text  # the open span was seen two hours ago
    with django_assert_max_num_queries(25):
        client.get(address)
    client.get(address, {"page": 1}, headers={"hx-request": "true"})
    assert "No history yet" in page_of(client, shifter, reverse("hosts:history", args=["wn9"]))


def test_history_in_pages_and_in_the_api(client, farm, shifter, api):
    for hours in range(1, 24):
        state = "down" if hours % 2 else "up"
        span(farm, state, since=AT + hours * HOUR, until=AT + (hours + 1) * HOUR)
    address = reverse("hosts:history", args=["wn1.example.org"])
    assert "page 1 of 2" in words_of(page_of(client, shifter, address))
    assert len(client.get(address, {"page": 2}).context["page"].object_list) == 3

    answer = api(shifter).get("/api/v1/hosts/history/", {"host": "wn1", "state": "down"})
    rows = answer.json()["results"]
    assert len(rows) == 12
    assert rows[0]["since"] > rows[-1]["since"]
    assert (rows[0]["cluster"], rows[0]["rebooted"]) == ("farm", False)
