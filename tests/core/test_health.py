"""Health for load balancers: with and without the parts it looks at."""

from datetime import timedelta

import pytest
from django.contrib.sessions.backends.db import SessionStore
from django.db import InterfaceError, OperationalError
from django.utils import timezone

from apps.core.domain.health import HEARTBEAT_LIMIT, beat_heart, readiness_by_heartbeats
from apps.core.models import Heartbeat


def test_healthz_asks_no_database(client, django_assert_num_queries, db):
    with django_assert_num_queries(0):
        assert client.get("/healthz").content == b"ok\n"


def checks(client):
    response = client.get("/readyz")
    return response.status_code, {check["name"]: check["ok"] for check in response.json()["checks"]}


def test_readyz_is_503_before_beat_was_heard(client, db):
    assert checks(client) == (503, {"database": True, "queue": True, "beat": False})


def test_readyz_is_200_when_all_is_well(client, db):
    beat_heart(name="beat", at=timezone.now())
    beat_heart(name="capture main", at=timezone.now(), detail={"waiting": 0})
    assert checks(client) == (200, {"database": True, "queue": True, "beat": True, "capture main": True})


def test_readyz_waits_for_the_capture_of_this_installation(client, db, settings):
    beat_heart(name="beat", at=timezone.now())
    settings.CAPTURE_CLUSTER = "farm"
    assert checks(client) == (503, {"database": True, "queue": True, "beat": True, "capture farm": False})


@pytest.mark.parametrize("silent", ["beat", "capture main"])
def test_readyz_is_503_when_a_heart_stops(client, db, silent):
    for name in ("beat", "capture main"):
        beat_heart(name=name, at=timezone.now())
    beat_heart(name=silent, at=timezone.now() - HEARTBEAT_LIMIT - timedelta(seconds=1))
    status, found = checks(client)
    assert (status, found[silent]) == (503, False)


def test_readyz_is_503_without_a_queue(client, db, settings):
    settings.CACHES = {
        "default": {"BACKEND": "django.core.cache.backends.redis.RedisCache", "LOCATION": "unix:///nowhere.sock"}
    }
    status, found = checks(client)
    assert (status, found["queue"]) == (503, False)


def test_healthz_asks_no_database_for_somebody_with_a_session_either(client, liaison, django_assert_num_queries):
    client.force_login(liaison)
    with django_assert_num_queries(0):
        assert client.get("/healthz").status_code == 200


def test_heart_of_a_capture_that_is_gone_can_be_deleted(client, admin):
    beat_heart(name="capture gone", at=timezone.now())
    client.force_login(admin)
    heart = Heartbeat.objects.get()
    client.post(f"/admin/core/heartbeat/{heart.pk}/delete/", {"post": "yes"})
    assert not Heartbeat.objects.exists()


@pytest.mark.parametrize(
    ("error", "status"), [(OperationalError("gone"), 503), (InterfaceError("gone"), 503), (RuntimeError("bug"), 500)]
)
@pytest.mark.parametrize("path", ["/jobs/", "/api/v1/jobs/"])
def test_what_goes_wrong_is_answered_without_the_database(client, db, monkeypatch, error, status, path):
    def fail(*_):
        raise error

    client.raise_request_exception = False
    client.cookies["sessionid"] = "a" * 32
    monkeypatch.setattr(SessionStore, "_get_session_from_db", fail)
    response = client.get(path)
    assert response.status_code == status
    assert ("detail" in response.json()) if path.startswith("/api/") else b"<h1>" in response.content
    assert ("Retry-After" in response.headers) == (status == 503)


def test_page_tells_of_the_queue_by_what_it_carried(client, admin, settings):
    settings.CACHES = {"default": {"BACKEND": "nobody.may.Ask"}}
    now = timezone.now()
    told = {check.name: (check.ok, check.detail) for check in readiness_by_heartbeats(now)}
    assert told["queue"] == (False, "no message yet")
    beat_heart(name="beat", at=now - timedelta(seconds=7))
    assert {check.name: check.detail for check in readiness_by_heartbeats(now)}["queue"] == "last message 7 s ago"
    late = now + HEARTBEAT_LIMIT
    assert not {check.name: check.ok for check in readiness_by_heartbeats(late)}["queue"]
    client.force_login(admin)
    assert "last message" in client.get("/health/").content.decode()
