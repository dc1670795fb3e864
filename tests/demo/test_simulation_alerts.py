"""Planted outages reach a webhook in Alertmanager's form: in order, again until accepted,
after a restart too.
"""

import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from apps.demo.simulation.alerts import AlertSender, notifications, payload
from apps.demo.simulation.outages import SimulatedTrouble
from apps.statusboard.feeds.alertmanager import Alertmanager
from apps.statusboard.feeds.base import Status

ORIGIN = 1_795_269_600
DAY = 86_400


class Webhook(HTTPServer):
    """A portal that answers with `statuses` in turn, then 200, and keeps what it accepted."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.statuses: list[int] = []
        self.accepted: list[dict[str, Any]] = []
        self.tokens: set[str] = set()


class Handler(BaseHTTPRequestHandler):
    server: Webhook

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        status = self.server.statuses.pop(0) if self.server.statuses else 200
        self.server.tokens.add(self.headers["Authorization"])
        if status == 200:
            self.server.accepted.append(body)
        self.send_response(status)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def webhook() -> Iterator[Webhook]:
    server = Webhook()
    thread = Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def token_file(tmp_path: Path) -> Path:
    path = tmp_path / "token"
    path.write_text("secret\n")
    return path


def sender(webhook: Webhook, token_file: Path) -> AlertSender:
    url = f"http://127.0.0.1:{webhook.server_port}/api/v1/feeds/monitoring/"
    return AlertSender(
        SimulatedTrouble(3, ORIGIN),
        url,
        token_file,
        token_file.with_name("cursor"),
        ORIGIN - 2 * DAY,
    )


def expected(since: float, until: float) -> list[dict[str, Any]]:
    return [
        payload(notification, ORIGIN)
        for notification in notifications(SimulatedTrouble(3, ORIGIN), since, until)
    ]


def test_past_outages_are_told_in_order(webhook: Webhook, token_file: Path) -> None:
    assert sender(webhook, token_file).send_due(ORIGIN)

    assert webhook.accepted == expected(ORIGIN - 2 * DAY, ORIGIN)
    assert webhook.tokens == {"Bearer secret"}
    told = [
        a
        for body in webhook.accepted
        for a in body["alerts"]
        if a["labels"]["alertname"] != "Watchdog"
    ]
    ended = {
        (alert["fingerprint"], alert["startsAt"]) for alert in told if alert["status"] == "resolved"
    }
    begun = {
        (alert["fingerprint"], alert["startsAt"]) for alert in told if alert["status"] == "firing"
    }
    assert len(ended) >= 4
    assert ended < begun


def test_what_is_refused_is_sent_again_before_what_follows(
    webhook: Webhook, token_file: Path
) -> None:
    webhook.statuses = [200, 200, 503, 401, 503]
    alerts = sender(webhook, token_file)

    answers = [alerts.send_due(ORIGIN) for _ in range(4)]

    assert answers == [False, False, False, True]
    assert webhook.accepted == expected(ORIGIN - 2 * DAY, ORIGIN)


def test_restart_tells_only_what_is_new(webhook: Webhook, token_file: Path) -> None:
    assert sender(webhook, token_file).send_due(ORIGIN)
    before = len(webhook.accepted)
    assert sender(webhook, token_file).send_due(ORIGIN)
    assert len(webhook.accepted) == before

    told_until = float(token_file.with_name("cursor").read_text())
    assert sender(webhook, token_file).send_due(ORIGIN + DAY)

    assert webhook.accepted[before:] == expected(told_until, ORIGIN + DAY)
    assert len(webhook.accepted) > before + 4


def test_missing_token_is_waited_for(webhook: Webhook, token_file: Path) -> None:
    token_file.unlink()
    alerts = sender(webhook, token_file)
    assert not alerts.send_due(ORIGIN)

    token_file.write_text("secret")
    assert alerts.send_due(ORIGIN)


def test_payloads_are_read_by_the_feed_as_they_are_meant() -> None:
    trouble = SimulatedTrouble(3, ORIGIN)
    feed = Alertmanager()
    kinds = {
        "firing": Status.OPEN,
        "repeat": Status.OPEN,
        "resolved": Status.RESOLVED,
        "heartbeat": Status.HEARTBEAT,
    }
    for notification in notifications(trouble, ORIGIN - 3 * DAY, ORIGIN + 3 * DAY):
        message = feed.parse(json.dumps(payload(notification, ORIGIN)).encode())

        (alert,) = message.alerts
        assert message.notes == ()
        assert alert.status is kinds[notification.reason]
        if notification.outage:
            assert alert.labels["service"] == notification.outage.service
            assert alert.started_at.timestamp() == notification.outage.started
            assert (alert.ended_at is not None) == (notification.reason == "resolved")
