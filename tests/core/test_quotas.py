"""Quotas, and the limits of what users can change by the API."""

import json
import time
from datetime import UTC, datetime, timedelta

import pytest
from django.core.cache import cache

from apps.accounts.enums import Role
from apps.core.domain import quotas
from apps.core.domain.quotas import DAY, HOUR, Quota
from tests.factories import people

AT = datetime(2026, 11, 22, 9, 20, tzinfo=UTC)


@pytest.fixture(autouse=True)
def empty_cache():
    cache.clear()


def test_amounts_count_by_owner_and_period():
    quota = Quota("test", 10, HOUR)
    assert [quota.add(owner, 4, at=AT) for owner in (1, 1, 2)] == [4, 8, 4]
    assert quota.add(1, 0, at=AT + timedelta(minutes=39)) == 8
    assert quota.add(1, 0, at=AT + timedelta(minutes=40)) == 0
    assert (quota.ends_at(AT), quota.wait_seconds(AT)) == (
        datetime(2026, 11, 22, 10, tzinfo=UTC),
        2400,
    )
    assert Quota("test", 10, DAY).ends_at(AT) == datetime(2026, 11, 23, tzinfo=UTC)


def test_cache_that_hangs_is_waited_for_once(monkeypatch, caplog):
    attempts = []

    def fail(*_, **__):
        attempts.append(1)
        raise ConnectionError

    with monkeypatch.context() as broken:
        broken.setattr(cache, "add", fail)
        assert [Quota(name, 10, HOUR).add(1, 99, at=AT) for name in ("a", "b")] == [0, 0]
    assert (len(attempts), caplog.text.count("cannot count")) == (1, 1)
    assert "cannot count a; no quota is counted for 30 s" in caplog.text


def test_quotas_are_counted_again_after_the_pause(monkeypatch):
    monkeypatch.setattr(quotas._Pause, "until", time.monotonic() + 60)
    assert Quota("test", 10, HOUR).add(1, 4, at=AT) == 0
    monkeypatch.setattr(quotas._Pause, "until", time.monotonic())
    assert Quota("test", 10, HOUR).add(1, 4, at=AT) == 4


@pytest.fixture
def save_view(client, db, time_machine):
    """Save a view of a name by the API as the user who is logged in."""
    time_machine.move_to(AT, tick=False)
    client.force_login(people.person("liu", (Role.SHIFTER, None)))

    def save(name, **headers):
        body = json.dumps({"path": "/jobs/", "name": name, "query": "state=failed"})
        return client.post(
            "/api/v1/saved-views/", body, content_type="application/json", headers=headers
        )

    return save


def test_changes_of_a_user_are_limited_by_the_hour(save_view, client, settings, time_machine):
    settings.API_MAX_CHANGES_PER_HOUR = 2
    assert [save_view(name).status_code for name in "ab"] == [201, 201]
    refused = save_view("c")
    assert (refused.status_code, refused["Retry-After"]) == (429, "2400")
    assert (
        "the limit of 2 changes by the API in an hour. Try again after 10:00 UTC."
        in refused.json()["detail"]
    )
    assert len(client.get("/api/v1/saved-views/").json()["results"]) == 2
    client.force_login(people.person("mara", (Role.SHIFTER, None)))
    assert save_view("c").status_code == 201


def test_changes_are_allowed_again_in_the_next_hour(save_view, settings, time_machine):
    settings.API_MAX_CHANGES_PER_HOUR = 1
    assert [save_view(name).status_code for name in "ab"] == [201, 429]
    time_machine.move_to(AT + timedelta(hours=1), tick=False)
    assert save_view("b").status_code == 201


def test_bytes_of_a_user_are_limited_before_they_are_parsed(save_view, settings):
    settings.API_MAX_BYTES_PER_HOUR = 100
    assert save_view("a").status_code == 201
    assert save_view("{" * 50).status_code == 429


def test_call_that_is_repeated_by_its_key_counts_once(save_view, settings):
    settings.API_MAX_CHANGES_PER_HOUR = 1
    assert [save_view("a", **{"Idempotency-Key": "1"}).status_code for _ in range(2)] == [201, 201]
