import base64
import json
from datetime import timedelta

import pytest
from django.core.cache import cache
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from apps.statusboard.api import views
from apps.statusboard.domain.incidents.incidents import open_incident
from apps.statusboard.domain.maintenance.announcements import post_announcement
from apps.statusboard.domain.maintenance.windows import schedule_window
from apps.statusboard.domain.monitoring import intake_journal
from apps.statusboard.domain.monitoring.intake import pump
from apps.statusboard.domain.monitoring.sources import add_token, create_source
from apps.statusboard.enums import State
from apps.statusboard.models import Announcement, DowntimeWindow, Incident, RawPayload
from tests.factories.statusboard import alert, message, service

HOUR = timedelta(hours=1)


@pytest.fixture
def now(db):
    cache.clear()
    return timezone.now()


@pytest.fixture
def samweb(now):
    return service("samweb", now - 48 * HOUR)


@pytest.fixture
def made(now):
    """A source and its token."""
    return create_source(slug="prometheus", by="test", at=now)


def send(body: bytes, token: str, slug: str = "prometheus", **headers):
    given = {"Authorization": f"Bearer {token}"} | headers
    return Client(enforce_csrf_checks=True).post(
        f"/api/v1/feeds/{slug}/", body, content_type="application/json", headers=given
    )


def test_feed_is_stored_then_parsed_by_a_task(made, samweb, now):
    source, token = made
    answer = send(message(alert(now, service="samweb")), token)
    pump()
    payload = RawPayload.objects.get()
    assert (answer.status_code, payload.state, payload.source) == (202, "received", source)
    assert not Incident.objects.exists()


def test_feed_with_basic_authentication_is_taken(made):
    _, token = made
    basic = base64.b64encode(f"any:{token}".encode()).decode()
    assert send(b"{}", "", Authorization=f"Basic {basic}").status_code == 202


@pytest.mark.parametrize(
    "authorization", ["", "Bearer", "Bearer wrong", "Basic ???", "Basic Og==", "Digest x"]
)
def test_feed_with_a_wrong_token_is_refused_alike_for_every_source(made, authorization):
    known = send(b"{}", "", Authorization=authorization)
    unknown = send(b"{}", "", slug="unknown", Authorization=authorization)
    assert known.status_code == unknown.status_code == 401
    assert known.content == unknown.content
    assert pump() == 0


def test_feed_with_the_token_of_another_source_is_refused(made, now):
    create_source(slug="other", by="test", at=now)
    assert send(b"{}", made[1], slug="other").status_code == 401


def test_old_token_works_until_it_is_revoked(made, now):
    source, token = made
    second = add_token(source=source, by="test", at=now)
    assert [send(b"{}", each).status_code for each in (token, second)] == [202, 202]
    third = add_token(source=source, by="test", at=now, revoke_others=True)
    assert [send(b"{}", each).status_code for each in (token, second, third)] == [401, 401, 202]


def test_feed_that_is_too_large_is_refused(made):
    assert send(b" " * (views.LIMIT_BYTES + 1), made[1]).status_code == 413
    assert send(b" " * views.LIMIT_BYTES, made[1]).status_code == 202


def test_feed_that_cannot_be_kept_is_asked_for_again(made, monkeypatch):
    monkeypatch.setattr(intake_journal, "LEAST_FREE_BYTES", 10**18)
    assert send(b"{}", made[1]).status_code == 503


def test_feed_that_comes_too_often_is_put_off_not_dropped(made, monkeypatch):
    monkeypatch.setattr(views, "LIMIT_A_MINUTE", 2)
    monkeypatch.setattr(views, "_PAYLOADS", views._Payloads())
    assert [send(b"{}", made[1]).status_code for _ in range(3)] == [202, 202, 503]


def test_feed_that_sends_too_much_in_a_day_is_put_off(made, now, monkeypatch):
    monkeypatch.setattr(views, "LIMIT_BYTES_A_DAY", 100)
    monkeypatch.setattr(views, "_PAYLOADS", views._Payloads())
    answers = [send(b" " * 60, made[1]) for _ in range(2)]
    assert [answer.status_code for answer in answers] == [202, 503]
    assert answers[1]["Retry-After"] == "30"
    _, token = create_source(slug="other", by="test", at=now)
    assert send(b" " * 60, token, slug="other").status_code == 202


def test_wrong_tokens_are_counted_by_address(made, monkeypatch, time_machine):
    time_machine.move_to("2026-11-22T09:20:00+00:00", tick=False)
    monkeypatch.setattr(views, "LIMIT_WRONG_A_MINUTE", 2)
    assert [send(b"{}", "wrong").status_code for _ in range(3)] == [401, 401, 429]
    assert send(b"{}", made[1]).status_code == 202
    time_machine.move_to("2026-11-22T09:21:00+00:00", tick=False)
    assert send(b"{}", "wrong").status_code == 401


def test_wrong_tokens_wait_once_for_a_cache_that_hangs(made, monkeypatch):
    attempts = []

    def fail(*_, **__):
        attempts.append(1)
        raise ConnectionError

    monkeypatch.setattr(cache, "add", fail)
    assert [send(b"{}", "wrong").status_code for _ in range(3)] == [401, 401, 401]
    assert len(attempts) == 1


def test_services_are_told_with_their_states(client, liaison, samweb, shifter, now):
    incident = open_incident(
        service=samweb, state=State.DOWN, title="x", by=shifter, at=now, started_at=now - HOUR
    )
    part = service("samweb-db", now, parent=samweb)
    client.force_login(liaison)
    first, second = client.get("/api/v1/services/").json()
    assert (first["slug"], first["state"], first["incident"]) == ("samweb", "down", incident.pk)
    assert (second["slug"], second["parent"], second["state"]) == (part.slug, "samweb", "up")
    assert client.get("/api/v1/services/samweb/").json() == first
    assert client.get("/api/v1/services/none/").status_code == 404


def post(client, address, data):
    return client.post(address, json.dumps(data), content_type="application/json")


def writes(samweb, now, shifter):
    incident = open_incident(service=samweb, state=State.DOWN, title="x", by=shifter, at=now)
    times = {"starts_at": now + HOUR, "ends_at": now + 2 * HOUR}
    window = schedule_window(services=[samweb], title="x", **times, by=shifter, at=now)
    announcement = post_announcement(title="x", by=shifter, at=now)
    told = {name: time.isoformat() for name, time in times.items()}
    return [
        ("/api/v1/incidents/", {"service": "samweb", "state": "down", "title": "x"}, 201),
        (f"/api/v1/incidents/{incident.pk}/close/", {"reason": "x"}, 200),
        ("/api/v1/windows/", {"services": ["samweb"], "title": "x", **told}, 201),
        (f"/api/v1/windows/{window.pk}/cancel/", {"reason": "x"}, 200),
        ("/api/v1/announcements/", {"title": "x", "experiments": []}, 201),
        (f"/api/v1/announcements/{announcement.pk}/withdraw/", {"reason": "x"}, 200),
    ]


@pytest.mark.parametrize("who", ["shifter", "approver", "admin"])
def test_opg_writes_by_the_api(client, who, samweb, now, shifter, request):
    client.force_login(request.getfixturevalue(who))
    for address, data, status in writes(samweb, now, shifter):
        assert post(client, address, data).status_code == status, address


def test_others_only_read_by_the_api(client, liaison, samweb, now, shifter):
    told = writes(samweb, now, shifter)
    counts = [model.objects.count() for model in (Incident, DowntimeWindow, Announcement)]
    client.force_login(liaison)
    assert [post(client, address, data).status_code for address, data, _ in told] == [403] * 6
    assert [model.objects.count() for model in (Incident, DowntimeWindow, Announcement)] == counts
    client.logout()
    assert [post(client, address, data).status_code for address, data, _ in told] == [401] * 6


def test_closing_twice_is_a_conflict(client, shifter, samweb, now):
    incident = open_incident(service=samweb, state=State.DOWN, title="x", by=shifter, at=now)
    client.force_login(shifter)
    address = f"/api/v1/incidents/{incident.pk}/close/"
    assert [post(client, address, {"reason": "x"}).status_code for _ in range(2)] == [200, 409]


def test_announcement_of_another_experiment_is_not_told(client, other_liaison, nova, shifter, now):
    announcement = post_announcement(title="x", by=shifter, at=now, experiments=[nova])
    client.force_login(other_liaison)
    assert client.get("/api/v1/announcements/").json()["results"] == []
    assert client.get(f"/api/v1/announcements/{announcement.pk}/").status_code == 404


def test_incidents_are_filtered(client, liaison, samweb, shifter, now):
    one = open_incident(service=samweb, state=State.DOWN, title="x", by=shifter, at=now)
    open_incident(
        service=service("dcache", now), state=State.DEGRADED, title="x", by=shifter, at=now
    )
    client.force_login(liaison)
    for query in ("service=samweb", "state=down", "open=true&service=samweb"):
        results = client.get(f"/api/v1/incidents/?{query}").json()["results"]
        assert [row["id"] for row in results] == [one.pk]
    assert client.get("/api/v1/incidents/?open=false").json()["results"] == []


@pytest.mark.parametrize("address", ["services", "incidents", "windows", "announcements"])
def test_lists_take_the_same_queries_for_one_and_three_rows(client, liaison, shifter, now, address):
    client.force_login(liaison)
    counts = []
    for places in ((0,), (1, 2)):
        for place in places:
            one = service(f"s{place}", now - 48 * HOUR)
            open_incident(service=one, state=State.DOWN, title="x", by=shifter, at=now)
            times = {"starts_at": now + HOUR, "ends_at": now + 2 * HOUR}
            schedule_window(services=[one], title="x", **times, by=shifter, at=now)
            post_announcement(title="x", by=shifter, at=now, services=[one])
        with CaptureQueriesContext(connection) as queries:
            assert client.get(f"/api/v1/{address}/").status_code == 200
        counts.append(len(queries))
    assert counts[0] == counts[1]
