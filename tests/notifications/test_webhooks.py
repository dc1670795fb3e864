"""Webhooks call a real HTTP server, signed, once;
never an address of the inside that is not allowed.
"""

import hashlib
import hmac
import json
import socket
import threading
from datetime import time, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from time import monotonic

import pytest
from django.urls import reverse

from apps.accounts.domain.roles import revoke_role
from apps.accounts.models import User
from apps.core.domain.events import publish
from apps.core.errors import InvalidFields, NotAllowed
from apps.core.http.errors import NameNotResolved, TimedOut
from apps.core.models import Event
from apps.notifications.domain import webhook_addresses
from apps.notifications.domain.preferences import follow_request, save_preferences
from apps.notifications.domain.webhook_posts import WebhookRefused, post_signed
from apps.notifications.domain.webhook_tests import reason_in_words
from apps.notifications.domain.webhooks import add_webhook, enable_webhook, renew_secret
from apps.notifications.enums import MessageState
from apps.notifications.models import Message, Notification, Webhook
from apps.production.domain.holds import place_hold
from tests.factories.requests import request_in
from tests.notifications.told import FRIDAY as AT
from tests.notifications.told import call, deliver
from tests.programs.certificates import self_signed, speak_tls
from tests.programs.dripping_server import PATIENCE_SECONDS, TLS_HANDSHAKE, dripping

pytestmark = pytest.mark.django_db


class Receiver(ThreadingHTTPServer):
    """Notes what it is told and answers with `status`."""

    daemon_threads = True

    def __init__(self, port: int = 0) -> None:
        self.told: list[tuple[dict[str, str], bytes]] = []
        self.status = 200
        super().__init__(("127.0.0.1", port), _Handler)
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/hook?room=7"


class _Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.told.append((dict(self.headers), body))
        self.send_response(self.server.status)
        if self.server.status == 302:
            self.send_header("Location", self.server.url)
        self.end_headers()

    def log_message(self, *args):
        pass


@pytest.fixture
def receiver(settings):
    settings.WEBHOOK_HTTP, settings.WEBHOOK_NETWORKS = True, ["127.0.0.0/8"]
    settings.PORTAL_URL = "https://portal.example.org"
    server = Receiver()
    yield server
    server.shutdown()
    server.server_close()


@pytest.fixture
def hook(receiver, waiting, approver):
    """A webhook of the approver, its secret, and a call that waits."""
    webhook = add_webhook(url=receiver.url, experiment=None, by=approver, at=AT)
    deliver()
    return webhook, webhook.secret


def test_call_is_signed_and_made_once(receiver, hook, waiting):
    call(AT)
    call(AT + timedelta(hours=1))
    ((headers, body),) = receiver.told
    stamp = headers["X-Opsportal-Timestamp"]
    wanted = hmac.new(hook[1].encode(), f"{stamp}.".encode() + body, hashlib.sha256).hexdigest()
    assert headers["X-Opsportal-Signature"] == f"sha256={wanted}"
    assert stamp == str(int(AT.timestamp()))
    told = json.loads(body)
    assert told["id"] == Event.objects.get(kind="request.pass").pk
    assert (told["kind"], told["request"], told["actor"]) == (
        "request.pass",
        waiting.key,
        "opsportal",
    )
    assert told["url"] == f"https://portal.example.org/requests/{waiting.key}/"
    assert Message.objects.get().state == MessageState.SENT


def test_secret_stays_until_the_key_that_it_was_made_with_is_gone(receiver, hook, replace_key):
    webhook, secret = hook
    replace_key(keep=True)
    webhook.refresh_from_db()
    assert webhook.secret == secret
    assert webhook.has_former_secret
    call(AT)
    ((headers, body),) = receiver.told
    signed = f"{headers['X-Opsportal-Timestamp']}.".encode() + body
    digest = hmac.new(secret.encode(), signed, hashlib.sha256).hexdigest()
    assert headers["X-Opsportal-Signature"] == f"sha256={digest}"

    replace_key(keep=False)
    assert webhook.secret != secret


def test_new_webhook_gets_a_secret_of_the_present_key(
    receiver, hook, approver, replace_key, client
):
    replace_key(keep=True)
    client.force_login(approver)
    page = client.get(reverse("notifications:settings")).content.decode()
    assert "make a new one, and give it to the receiver" in page
    assert "You have no webhooks" not in page
    hook[0].delete()
    assert "You have no webhooks" in client.get(reverse("notifications:settings")).text
    renewed = add_webhook(url=receiver.url, experiment=None, by=approver, at=AT)
    assert not renewed.has_former_secret
    assert renewed.secret != hook[1]
    page = client.get(reverse("notifications:settings")).content.decode()
    assert "make a new one, and give it to the receiver" not in page


def test_new_secret_signs_what_waits_and_is_shown_once(receiver, hook, approver, client):
    webhook, former = hook
    client.force_login(approver)
    url = reverse("notifications:change-webhook", args=[webhook.pk])
    page = client.post(url, {"do": "secret"})
    webhook.refresh_from_db()
    assert webhook.secret != former
    assert webhook.secret in page.text
    assert "no-store" in page["Cache-Control"]
    assert webhook.secret not in client.get(reverse("notifications:settings")).text

    call(AT)
    ((headers, body),) = receiver.told
    signed = f"{headers['X-Opsportal-Timestamp']}.".encode() + body
    digest = hmac.new(webhook.secret.encode(), signed, hashlib.sha256).hexdigest()
    assert headers["X-Opsportal-Signature"] == f"sha256={digest}"


def test_webhook_of_a_lost_key_is_whole_again_with_a_new_secret(hook, approver, replace_key):
    replace_key(keep=False)
    renewed = renew_secret(webhook=hook[0], by=approver, at=AT)
    assert not renewed.has_former_secret
    assert Event.objects.filter(kind="webhook.secret_renewed").count() == 1


def test_only_the_owner_makes_a_new_secret(hook, liaison, client):
    webhook, secret = hook
    client.force_login(liaison)
    for url in (
        f"/notifications/settings/webhooks/{webhook.pk}/",
        f"/api/v1/webhooks/{webhook.pk}/new-secret/",
    ):
        assert client.post(url, {"do": "secret"}).status_code == 404
    webhook.refresh_from_db()
    assert webhook.secret == secret


def test_holds_over_many_requests_are_called_once_where_they_may_be_seen(
    receiver, asked, liaison, other_liaison, approver, shifter, nova, dune
):
    request_in("queued", by=liaison, experiment=nova, approver=approver)
    request_in("queued", by=other_liaison, experiment=dune, approver=approver)
    deliver()
    for by, of in ((liaison, None), (other_liaison, None), (approver, nova)):
        add_webhook(url=receiver.url, experiment=of, by=by, at=AT)
    place_hold(by=shifter, at=AT, reason="Power cut.", experiment=nova)
    place_hold(by=shifter, at=AT, reason="Farm is full.")
    deliver()
    other_liaison.memberships.all().delete()
    call(AT)
    call(AT + timedelta(hours=1))
    told = [json.loads(body) for _, body in receiver.told]
    expected = [
        ("NOvA is on hold: no new jobs start", "Power cut."),
        ("All production is on hold: no new jobs start", "Farm is full."),
    ]
    assert sorted((one["text"], one["reason"]) for one in told) == sorted(expected * 2), (
        "a person's and an experiment's"
    )
    assert {(one["request"], one["url"]) for one in told} == {
        (None, "https://portal.example.org/requests/holds/")
    }
    assert Message.objects.get(webhook__user=other_liaison).state == MessageState.DROPPED


@pytest.fixture
def certificate(tmp_path):
    return self_signed(tmp_path, "DNS:localhost")


@pytest.mark.parametrize(
    ("host", "trusted", "arrives"),
    [("localhost", True, True), ("localhost", False, False), ("127.0.0.1", True, False)],
)
def test_tls_is_judged_by_the_name_and_not_the_pinned_address(
    receiver, hook, certificate, settings, monkeypatch, host, trusted, arrives
):
    settings.WEBHOOK_HTTP, settings.WEBHOOK_NETWORKS = False, ["127.0.0.0/8", "::1/128"]
    speak_tls(receiver, certificate)
    if trusted:
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate[0]))
    Webhook.objects.update(url=f"https://{host}:{receiver.server_port}/")
    call(AT)
    assert bool(receiver.told) is arrives
    assert Webhook.objects.get().last_error.startswith(
        "" if arrives else "SSLCertVerificationError"
    )


def test_secret_is_in_no_table(hook):
    webhook, secret = hook
    assert secret not in str(Webhook.objects.filter(pk=webhook.pk).values().get())


@pytest.mark.parametrize("status", [500, 400, 302])
def test_failure_is_tried_again_later(receiver, hook, status):
    receiver.status = status
    call(AT)
    call(AT + timedelta(seconds=5))
    assert len(receiver.told) == 1  # a redirect is not followed either
    receiver.status = 204
    call(AT + timedelta(seconds=10))
    assert len(receiver.told) == 2
    assert (
        receiver.told[0][0]["X-Opsportal-Delivery"] == receiver.told[1][0]["X-Opsportal-Delivery"]
    )
    assert Webhook.objects.get().failing_since is None


def test_one_message_that_is_refused_keeps_no_other_back(receiver, hook, waiting):
    receiver.status = 400
    call(AT)
    publish(kind="request.submit", target=waiting, by="x", at=AT)
    follow_request(request=waiting, user=hook[0].user, level="watching")
    deliver()
    receiver.status = 200
    call(AT + timedelta(seconds=11))
    assert Message.objects.filter(state=MessageState.SENT).count() == 2


def test_receiver_that_is_down_for_days_is_switched_off_and_its_owner_told(
    receiver, hook, approver, waiting
):
    receiver.shutdown()
    receiver.server_close()
    call(AT)
    call(AT + timedelta(days=2))
    assert Webhook.objects.get().enabled
    call(AT + timedelta(days=3))
    assert not Webhook.objects.get().enabled
    told = Notification.objects.get(user=approver, event__kind="webhook.disabled")
    assert told.request is None
    again = Receiver(receiver.server_port)
    call(AT + timedelta(days=4))
    assert again.told == []
    enable_webhook(webhook=Webhook.objects.get(), by=approver, at=AT + timedelta(days=4))
    call(AT + timedelta(days=4))
    # What waited was not lost.
    assert [json.loads(body)["kind"] for _, body in again.told] == ["request.pass"]
    again.shutdown()
    again.server_close()


def test_experiment_is_told_of_all_its_requests(receiver, waiting, nova, dune, shifter):
    add_webhook(url=receiver.url, experiment=nova, by=shifter, at=AT)
    add_webhook(url=receiver.url, experiment=dune, by=shifter, at=AT)
    deliver()
    call(AT)
    kinds = [json.loads(body)["kind"] for _, body in receiver.told]
    assert kinds == ["request.created", "request.submit", "request.check", "request.pass"]


def test_removed_member_is_told_no_more(receiver, hook, approver):
    revoke_role(membership=approver.memberships.get(), by="test", at=AT)
    call(AT)
    assert receiver.told == []
    assert Message.objects.get().state == MessageState.DROPPED


@pytest.mark.parametrize("leaves", ["role", "account"])
def test_webhook_of_an_experiment_waits_once_who_added_it_has_left(
    receiver, waiting, nova, shifter, approver, leaves
):
    hook = add_webhook(url=receiver.url, experiment=nova, by=shifter, at=AT)
    deliver()
    if leaves == "role":
        revoke_role(membership=shifter.memberships.get(), by="test", at=AT)
    else:
        User.objects.filter(pk=shifter.pk).update(is_active=False)
    call(AT)
    hook.refresh_from_db()
    assert (receiver.told, hook.enabled) == ([], False)
    assert "is not in the OPG any more" in hook.last_error
    assert Event.objects.get(kind="webhook.disabled").reason == hook.last_error

    enable_webhook(webhook=hook, by=approver, at=AT)
    call(AT)
    assert len(receiver.told) == 4


def test_quiet_hours_hold_calls_back_too(receiver, hook, approver):
    User.objects.update(time_zone="UTC")
    save_preferences(
        user=approver, digest_hour=8, quiet_from=time(11), quiet_until=time(13), rules={}
    )
    call(AT)
    assert receiver.told == []
    call(AT + timedelta(hours=1))
    assert len(receiver.told) == 1


def test_drip_is_cut_off(receiver, hook, monkeypatch):
    monkeypatch.setattr("apps.notifications.domain.webhook_posts.LIMIT_SECONDS", 1)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        Webhook.objects.update(url=f"http://127.0.0.1:{silent.getsockname()[1]}/")
        call(AT)
    assert Webhook.objects.get().failures == 1


def test_drip_of_a_tls_handshake_is_cut_off(receiver, monkeypatch):
    monkeypatch.setattr("apps.notifications.domain.webhook_posts.LIMIT_SECONDS", 0.3)
    begun = monotonic()
    with dripping(TLS_HANDSHAKE) as port, pytest.raises(TimedOut):
        post_signed(
            url=f"https://127.0.0.1:{port}/", secret="s", body=b"", timestamp=0, delivery="1"
        )
    assert monotonic() - begun < PATIENCE_SECONDS


def test_only_the_opg_adds_those_of_experiments(liaison, nova, receiver):
    with pytest.raises(NotAllowed):
        add_webhook(url=receiver.url, experiment=nova, by=liaison, at=AT)


def test_there_are_at_most_five(liaison, receiver):
    for _ in range(5):
        add_webhook(url=receiver.url, experiment=None, by=liaison, at=AT)
    with pytest.raises(InvalidFields):
        add_webhook(url=receiver.url, experiment=None, by=liaison, at=AT)


BAD = [
    "http://example.org/",
    "ftp://example.org/",
    "https:///x",
    "https://user:pass@example.org/",
    "https://127.0.0.1/",
    "https://[::1]/",
    "https://[::ffff:10.0.0.1]/",
    "https://169.254.169.254/latest/meta-data",
    "https://10.1.2.3/",
    "https://example.org/a b",
    "https://example.org/\r\nHost: x",
    "https://example.org:99999/",
    "https://[bad/",
    "https://exämple.org/",
    "https://example.org/" + "x" * 500,
]


@pytest.mark.parametrize("url", BAD)
def test_bad_address_is_refused(url, settings):
    settings.WEBHOOK_HTTP, settings.WEBHOOK_NETWORKS = False, []
    with pytest.raises(webhook_addresses.BadAddress):
        webhook_addresses.check_address(url)


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        (
            "https://localhost:1/",
            "localhost is not on the public internet. An admin can allow its network in",
        ),
        ("https://nothing.invalid/", "nothing.invalid cannot be resolved: "),
    ],
)
def test_name_that_leads_inside_or_nowhere_is_not_called(receiver, hook, settings, url, reason):
    settings.WEBHOOK_NETWORKS = []
    Webhook.objects.update(url=url)
    call(AT)
    assert Webhook.objects.get().last_error.startswith(reason)


def test_error_does_not_show_the_secret_in_the_url(receiver, hook, caplog):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    Webhook.objects.update(url=f"http://127.0.0.1:{port}/services/T0K3N?key=S3CR3T")
    call(AT)
    last_error = Webhook.objects.get().last_error
    assert last_error.startswith("ConnectionRefusedError: ")
    for secret in ("T0K3N", "S3CR3T"):
        assert secret not in last_error + caplog.text


@pytest.fixture
def press_test(client, approver, hook):
    """Press *Send a test* for the webhook, and return the page that follows."""
    client.force_login(approver)

    def press() -> str:
        address = reverse("notifications:change-webhook", args=[hook[0].pk])
        return client.post(address, {"do": "test"}, follow=True).text

    return press


def settings_page(client) -> str:
    return " ".join(client.get(reverse("notifications:settings")).text.split())


def test_a_test_is_one_signed_call_whose_answer_is_shown(receiver, hook, press_test, client):
    page = press_test()
    assert "Sending a test" in page
    assert 'hx-trigger="every 2s"' in page
    press_test()
    tests = Message.objects.filter(event__kind="webhook.tested")
    assert tests.count() == 1

    receiver.status = 204
    call(tests.get().due_at)

    bodies = [json.loads(body) for _, body in receiver.told]
    assert [body["kind"] for body in bodies].count("webhook.tested") == 1
    page = settings_page(client)
    assert "The receiver answered 204." in page
    assert "test accepted" in page
    assert "every 2s" not in page


def test_a_failed_test_says_what_to_check_and_delays_nothing(receiver, hook, press_test, client):
    webhook, _ = hook
    call(AT)
    press_test()
    receiver.status = 403
    message = Message.objects.get(event__kind="webhook.tested")
    call(message.due_at)
    page = settings_page(client)
    assert "The receiver answered 403." in page
    assert "check the secret" in page
    webhook.refresh_from_db()
    assert (webhook.failures, webhook.retry_at, webhook.last_error) == (0, None, "")
    calls_before = len(receiver.told)
    call(message.due_at + timedelta(days=1))
    assert len(receiver.told) == calls_before


def test_reasons_of_failed_tests_are_plain():
    unknown = NameNotResolved("hooks.example.org", OSError("[Errno -2] Name or service not known"))
    assert reason_in_words(unknown) == "The host hooks.example.org is not known: check the URL."
    assert "within 20 s" in reason_in_words(TimedOut(TimeoutError()))
    assert "Redirects are not followed" in reason_in_words(WebhookRefused(302))
    assert "look at its log" in reason_in_words(WebhookRefused(500))
    assert reason_in_words(WebhookRefused(404)).endswith("check the URL.")


def test_a_test_does_not_wait_for_quiet_hours_or_a_retry(receiver, hook, press_test, approver):
    webhook, _ = hook
    Webhook.objects.filter(pk=webhook.pk).update(
        retry_at=AT + timedelta(days=90), failures=3, failing_since=AT
    )
    save_preferences(
        user=approver, rules={}, digest_hour=8, quiet_from=time(0, 0), quiet_until=time(23, 59)
    )
    press_test()
    message = Message.objects.get(event__kind="webhook.tested")
    call(message.due_at)
    assert json.loads(receiver.told[-1][1])["kind"] == "webhook.tested"
    webhook.refresh_from_db()
    assert webhook.failing_since is None


def test_a_test_keeps_to_the_allowed_addresses(receiver, hook, press_test, client, settings):
    press_test()
    settings.WEBHOOK_NETWORKS = []
    calls_before = len(receiver.told)
    call(Message.objects.get(event__kind="webhook.tested").due_at)
    assert len(receiver.told) == calls_before
    assert "is not on the public internet" in settings_page(client)


def test_a_disabled_webhook_is_not_tested(hook, press_test):
    Webhook.objects.update(enabled=False)
    page = press_test()
    assert "Enable it first." in page
    assert "Send a test" not in page
    assert not Message.objects.filter(event__kind="webhook.tested").exists()
