"""Health for load balancers: with and without the parts it looks at."""

from datetime import timedelta

import pytest
from django.contrib.sessions.backends.db import SessionStore
from django.db import InterfaceError, OperationalError
from django.utils import timezone

from apps.core.domain.health import beat_capture, beat_heart, check_components, forget_retired
from apps.core.models import Heartbeat


def test_healthz_asks_no_database(client, django_assert_num_queries, db):
    with django_assert_num_queries(0):
        assert client.get("/healthz").content == b"ok\n"


def checks(client):
    response = client.get("/readyz")
    return response.status_code, {check["name"]: check["ok"] for check in response.json()["checks"]}


def test_readyz_is_200_when_this_process_can_serve(client, db):
    assert checks(client) == (200, {"database": True, "schema": True, "queue": True})


def test_readyz_neither_waits_for_other_processes_nor_names_them(client, db, settings):
    settings.CAPTURE_CLUSTER = "farm"
    long_ago = timezone.now() - timedelta(days=30)
    beat_heart(name="beat", at=long_ago)
    beat_capture(cluster="secret-farm", host="scheduler-1", at=long_ago, detail={})
    assert checks(client) == (200, {"database": True, "schema": True, "queue": True})


def test_readyz_is_503_without_a_queue(client, db, settings):
    settings.CACHES = {
        "default": {
            "BACKEND": "django.core.cache.backends.redis.RedisCache",
            "LOCATION": "unix:///nowhere.sock",
        }
    }
    assert checks(client) == (503, {"database": True, "schema": True, "queue": False})


@pytest.fixture
def all_run(db):
    """Beat, a worker, the queue and two captures of one cluster, all heard just now."""
    now = timezone.now()
    for name in ("beat", "worker celery@w1", "queue"):
        beat_heart(name=name, at=now)
    for host in ("ctl1", "ctl2"):
        beat_capture(cluster="alps", host=host, at=now, detail={"waiting": 0})
    return now


def failing(at) -> dict[str, str]:
    return {check.name: check.detail for check in check_components(at) if not check.ok}


def test_all_components_are_named(all_run):
    names = [
        "database",
        "queue",
        "beat",
        "worker celery@w1",
        "capture alps on ctl1",
        "capture alps on ctl2",
    ]
    assert [check.name for check in check_components(all_run)] == names
    assert failing(all_run) == {}


@pytest.mark.parametrize("silent", ["beat", "capture alps on ctl2"])
def test_process_that_stops_is_named(all_run, silent):
    Heartbeat.objects.filter(name=silent).update(at=all_run - timedelta(seconds=300))
    assert failing(all_run) == {
        silent: "dead, or cut off from the database: last heartbeat 300 s ago"
    }


def test_dead_worker_is_shown_as_one_and_beat_as_well(all_run):
    Heartbeat.objects.filter(name__in=["worker celery@w1", "queue"]).update(
        at=all_run - timedelta(seconds=300)
    )
    failing_checks = failing(all_run)
    assert set(failing_checks) == {"worker celery@w1", "workers", "queue"}
    assert failing_checks["worker celery@w1"].startswith("dead")
    assert failing_checks["workers"] == "none is running"
    assert failing_checks["queue"] == "last message 300 s ago: beat or a worker is missing"


def test_queue_that_carries_nothing_is_told_from_dead_processes(all_run):
    Heartbeat.objects.filter(name="queue").update(at=all_run - timedelta(seconds=300))
    assert failing(all_run) == {
        "queue": "last message 300 s ago, though beat and workers run: no Redis, or they are stuck"
    }


def test_what_was_never_heard_is_missing(db, settings):
    settings.CAPTURE_CLUSTER = "farm"
    missing = {"queue": "no message yet: beat or a worker is missing", "beat": "no heartbeat yet"}
    missing |= {"workers": "none is running", "capture farm": "no heartbeat yet"}
    assert failing(timezone.now()) == missing


def test_healthz_asks_no_database_for_somebody_with_a_session_either(
    client, liaison, django_assert_num_queries
):
    client.force_login(liaison)
    with django_assert_num_queries(0):
        assert client.get("/healthz").status_code == 200


def states_of(at):
    return {check.name: (check.ok, check.is_retired) for check in check_components(at)}


def test_worker_that_another_one_replaces_is_retired_after_a_day_and_forgotten(all_run):
    at = timezone.now()
    for name, hours in (("old", 25), ("missing", 23), ("ancient", 24 * 31)):
        beat_heart(name=f"worker celery@{name}", at=at - timedelta(hours=hours))
    states = states_of(at)
    assert states["worker celery@old"] == states["worker celery@ancient"] == (True, True)
    assert states["worker celery@missing"] == (False, False)

    assert forget_retired(at=at) == 1
    assert set(states) - set(states_of(at)) == {"worker celery@ancient"}
    beat_heart(name="worker celery@old", at=at)
    assert states_of(at)["worker celery@old"] == (True, False)


def test_the_last_worker_of_a_queue_a_beat_and_a_capture_are_never_retired(all_run):
    at = timezone.now()
    names = ("worker harvest@old", "beat", "capture farm on ctl1", "waiting beat on h2")
    for name in names:
        beat_heart(name=name, at=at - timedelta(days=90))
    states = states_of(at)
    assert {states[name] for name in names} == {(False, False)}
    assert forget_retired(at=at) == 0

    beat_heart(name="beat", at=at)
    assert states_of(at)["waiting beat on h2"] == (True, True)


def test_retired_worker_is_named_on_the_page_and_has_no_series(client, all_run, shifter):
    beat_heart(name="worker celery@old", at=timezone.now() - timedelta(days=3))
    client.force_login(shifter)
    assert "retired: last heartbeat 3 d ago" in client.get("/health/").text
    series = client.get("/metrics").text
    assert 'opsportal_check_ok{check="worker celery@w1"} 1.0' in series
    assert "worker celery@old" not in series


def test_heart_of_a_capture_that_is_gone_can_be_deleted(client, admin):
    beat_heart(name="capture gone", at=timezone.now())
    client.force_login(admin)
    heart = Heartbeat.objects.get()
    client.post(f"/admin/core/heartbeat/{heart.pk}/delete/", {"post": "yes"})
    assert not Heartbeat.objects.exists()


@pytest.mark.parametrize(
    ("error", "status"),
    [(OperationalError("gone"), 503), (InterfaceError("gone"), 503), (RuntimeError("bug"), 500)],
)
@pytest.mark.parametrize("path", ["/jobs/", "/api/v1/jobs/"])
def test_what_goes_wrong_is_answered_without_the_database(
    client, db, monkeypatch, error, status, path
):
    def fail(*_):
        raise error

    client.raise_request_exception = False
    client.cookies["sessionid"] = "a" * 32
    monkeypatch.setattr(SessionStore, "_get_session_from_db", fail)
    response = client.get(path)
    assert response.status_code == status
    assert (
        ("detail" in response.json()) if path.startswith("/api/") else b"<h1>" in response.content
    )
    assert ("Retry-After" in response.headers) == (status == 503)


def test_page_tells_of_the_queue_by_what_it_carried(client, admin, settings, all_run):
    settings.CACHES = {"default": {"BACKEND": "nobody.may.Ask"}}
    Heartbeat.objects.filter(name="queue").update(at=all_run - timedelta(seconds=7))
    assert {check.name: check.detail for check in check_components(all_run)}[
        "queue"
    ] == "last message 7 s ago"
    client.force_login(admin)
    assert "last message" in client.get("/health/").content.decode()
