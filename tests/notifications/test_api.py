"""Notifications over the API: read, chosen, followed, fed;
secrets are told once and kept by nobody.
"""

import pytest

from apps.api.models import KeyedCall
from apps.core.domain.events import events_of
from apps.notifications.domain.notifications import notify
from apps.notifications.models import Notification, Webhook
from tests.factories.requests import draft, request_in

JSON = "application/json"


@pytest.fixture
def as_liaison(client, liaison):
    client.force_login(liaison)
    return client


@pytest.fixture
def told(nova, liaison, approver):
    """A request whose approval its liaison was told of."""
    obj = request_in("queued", by=liaison, experiment=nova, approver=approver)
    for event in events_of(obj):
        notify(event=event)
    return obj


def test_notifications_are_listed_and_marked_as_read(as_liaison, told, liaison):
    rows = as_liaison.get("/api/v1/notifications/").json()["results"]
    assert rows[0]["request"] == told.key
    assert as_liaison.get("/api/v1/notifications/", {"unread": "true"}).json()["results"] == rows
    read = as_liaison.post(
        "/api/v1/notifications/read/", {"only": rows[0]["id"]}, content_type=JSON
    )
    assert read.json()["read"] == 1
    rest = as_liaison.post(
        "/api/v1/notifications/read/", {"until": rows[0]["id"]}, content_type=JSON
    )
    assert rest.json()["read"] == len(rows) - 1
    assert as_liaison.get("/api/v1/notifications/", {"unread": "true"}).json()["results"] == []
    assert as_liaison.post("/api/v1/notifications/read/", {}, content_type=JSON).status_code == 400
    assert not Notification.objects.filter(user=liaison, read_at=None).exists()


def test_preferences_are_what_was_chosen(as_liaison):
    address = "/api/v1/notification-preferences/"
    chosen = as_liaison.get(address).json()
    assert chosen["digest_hour"] == 8
    rules = [{"channel": "mail", "group": "turn", "when": "never"}]
    sent = {"digest_hour": 6, "quiet_from": "22:00:00", "quiet_until": "06:00:00", "rules": rules}
    assert as_liaison.put(address, sent, content_type=JSON).status_code == 200
    now = as_liaison.get(address).json()
    assert (now["digest_hour"], now["quiet_from"]) == (6, "22:00:00")
    assert rules[0] in now["rules"]
    assert len(now["rules"]) == len(chosen["rules"])
    assert as_liaison.put(address, now, content_type=JSON).json() == now


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"digest_hour": 24}, "digest_hour"),
        ({"digest_hour": 1, "quiet_from": "22:00"}, "quiet_until"),
        (
            {
                "digest_hour": 1,
                "rules": [{"channel": "webhook", "group": "turn", "when": "digest"}],
            },
            "rules.0.when",
        ),
    ],
)
def test_preferences_that_make_no_sense_are_told(as_liaison, wrong, field):
    refused = as_liaison.put("/api/v1/notification-preferences/", wrong, content_type=JSON)
    assert (refused.status_code, list(refused.json())) == (400, [field])


def test_feeds_have_secret_addresses_that_can_be_made_useless(as_liaison, nova):
    address = "/api/v1/feed-addresses/"
    assert as_liaison.get(address).json() == []
    made = as_liaison.post(address)
    assert made["Cache-Control"] == "no-store"
    feed = made.json()[0]["address"].partition("/feeds/")[2]
    assert as_liaison.get(f"/feeds/{feed}").status_code == 200
    assert as_liaison.delete(address).status_code == 204
    assert as_liaison.get(f"/feeds/{feed}").status_code == 404


def test_a_webhook_is_added_and_removed_and_its_secret_is_not_kept(as_liaison):
    headers, sent = {"Idempotency-Key": "k"}, {"url": "https://chat.example.org/hook/s3cr3t"}
    made = as_liaison.post("/api/v1/webhooks/", sent, content_type=JSON, headers=headers)
    assert (made.status_code, made["Cache-Control"]) == (201, "no-store")
    secret = made.json()["secret"]
    again = as_liaison.post("/api/v1/webhooks/", sent, content_type=JSON, headers=headers)
    assert (again.status_code, Webhook.objects.count()) == (409, 1)
    assert "was made before" in again.json()["detail"]
    assert secret.encode() not in bytes(KeyedCall.objects.get().body)
    told = as_liaison.get("/api/v1/webhooks/")
    assert told.json()["results"][0]["host"] == "chat.example.org"
    assert b"s3cr3t" not in told.content
    at = f"/api/v1/webhooks/{made.json()['id']}/"
    assert as_liaison.post(f"{at}enable/").status_code == 200
    renewed = as_liaison.post(f"{at}new-secret/")
    assert (renewed.status_code, renewed["Cache-Control"]) == (200, "no-store")
    assert renewed.json()["secret"] == Webhook.objects.get().secret != secret
    assert as_liaison.delete(at).status_code == 204
    assert not Webhook.objects.exists()


def test_webhooks_of_experiments_are_the_opgs(as_liaison, nova):
    sent = {"url": "https://chat.example.org/", "experiment": "NOVA"}
    assert as_liaison.post("/api/v1/webhooks/", sent, content_type=JSON).status_code == 403
    inside = as_liaison.post("/api/v1/webhooks/", {"url": "https://127.0.0.1/"}, content_type=JSON)
    assert (inside.status_code, list(inside.json())) == (400, ["url"])


def test_a_request_is_watched_and_muted(as_liaison, nova, liaison, dune):
    address = f"/api/v1/requests/{draft(liaison, nova).key}/follow/"
    for level in ("watching", "muted", ""):
        assert as_liaison.put(address, {"level": level}, content_type=JSON).json() == {
            "level": level
        }
        assert as_liaison.get(address).json() == {"level": level}
    assert as_liaison.put(address, {"level": "loud"}, content_type=JSON).status_code == 400
