"""What a source no longer reports when it is asked is closed; a question that fails is shown, and closes nothing."""

import json
import threading
from collections.abc import Iterator
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from django.core.cache import cache

from apps.core.errors import InvalidFields
from apps.statusboard.domain import source_fetch
from apps.statusboard.domain.payloads import parse_payload
from apps.statusboard.domain.pulls import pull_source
from apps.statusboard.domain.source_fetch import PullFailed, fetch
from apps.statusboard.domain.sources import create_source
from apps.statusboard.models import Incident, MonitoringSource, RawPayload
from tests.factories.statusboard import alert, post, service, source

HOUR = timedelta(hours=1)


class Answers:
    """A source on loopback: what it answers by path, and what it was asked with which credentials."""

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self.bodies: dict[str, Any] = {}
        self.asked: list[tuple[str, str | None]] = []


@pytest.fixture
def answers() -> Iterator[Answers]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found = self.server.answers
            found.asked.append((self.path, self.headers["Authorization"]))
            answer = found.bodies.get(self.path.partition("?")[0], (404, b"", {}))
            status, body, headers = answer if isinstance(answer, tuple) else (200, answer, {})
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(body))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.answers = Answers(server.server_port)
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server.answers
        server.shutdown()
        thread.join()


def pulled(of: MonitoringSource) -> RawPayload | None:
    """Fetch a source and parse what it answers."""
    before = RawPayload.objects.count()
    pull_source(source_id=of.pk)
    return parse_payload(payload_id=RawPayload.objects.latest("pk").pk) if RawPayload.objects.count() > before else None


def listed(*alerts: dict) -> bytes:
    """As Alertmanager's API lists alerts: with a state, and a fingerprint."""
    return json.dumps([{**one, "status": {"state": "suppressed", "silencedBy": ["x"]}} for one in alerts]).encode()


def test_alert_that_is_no_longer_listed_is_over_and_comes_back_if_it_is_reported_again(db, answers, settings, at):
    settings.FEED_HOSTS = ["127.0.0.1"]
    made = source(at - HOUR, pull_url=answers.url)
    samweb = service("samweb", at - HOUR, source=made)
    kept, gone = (alert(at, service="samweb", key=key) for key in ("kept", "gone"))
    post(made, at, kept, gone)
    answers.bodies["/api/v2/alerts"] = listed(kept)
    payload = pulled(made)
    assert (payload.state, payload.notes) == ("parsed", "")
    states = dict(Incident.objects.values_list("dedup_key", "resolution"))
    assert states == {"kept": "", "gone": "missing"}
    made.refresh_from_db()
    assert (made.pulled_at, made.pull_error) == (payload.received_at, "")

    post(made, payload.received_at + HOUR, gone)
    incident = Incident.objects.get(dedup_key="gone")
    assert (incident.is_open, incident.service, Incident.objects.count()) == (True, samweb, 2)
    parse_payload(payload_id=payload.pk, again=True)  # an older list says nothing of what was reported since
    incident.refresh_from_db()
    assert incident.is_open


def test_icinga_is_asked_for_hosts_and_services(db, answers, settings, at):
    settings.FEED_HOSTS = ["127.0.0.1"]
    made = source(at - HOUR, feed="icinga2", pull_url=answers.url)
    service("samweb", at - HOUR, source=made)
    state = {"name": "http", "host_name": "sam1", "state": 2, "state_type": 1, "last_hard_state_change": at.timestamp()}
    problem = {"type": "Service", "name": "sam1!http", "attrs": {**state, "vars": {}}}
    answers.bodies["/v1/objects/hosts"] = b'{"results": []}'
    answers.bodies["/v1/objects/services"] = json.dumps({"results": [problem]}).encode()
    payload = pulled(made)
    assert (payload.state, payload.notes, payload.unmapped) == ("parsed", "", 1)


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ((302, b"", {"Location": "http://127.0.0.1/"}), "It answers 302"),
        ((200, b"x" * 2000, {}), "larger than"),
        ((500, b"", {}), "It answers 500"),
    ],
)
def test_failed_question_is_shown_beside_its_source_and_closes_nothing(
    db, answers, settings, at, monkeypatch, client, shifter, answer, reason
):
    cache.clear()
    settings.FEED_HOSTS = ["127.0.0.1"]
    monkeypatch.setattr(source_fetch, "MOST_BYTES", 1000)
    made = source(at - HOUR, pull_url=answers.url)
    service("samweb", at - HOUR, source=made)
    post(made, at, alert(at, service="samweb"))
    answers.bodies["/api/v2/alerts"] = answer
    assert pulled(made) is None
    assert Incident.objects.get().is_open
    client.force_login(shifter)
    page = client.get("/services/monitoring/sources/").content.decode()
    assert "last fetched never" in page
    assert reason in page


def test_only_hosts_of_the_settings_are_asked(db, answers, settings, at, tmp_path):
    settings.FEED_HOSTS = ["elsewhere.example", "127.0.0.1:1"]
    for url in (
        answers.url,
        "http://elsewhere.example.evil/",
        "ftp://elsewhere.example/",
        "http://a@elsewhere.example",
    ):
        with pytest.raises(PullFailed):
            fetch(feed="alertmanager", url=url)
    with pytest.raises(InvalidFields):
        create_source(slug="x", by="test", at=at, feed="grafana", pull_url="https://elsewhere.example/")
    assert answers.asked == []
    settings.FEED_HOSTS = [answers.url.removeprefix("http://")]
    settings.FEED_NETRC = tmp_path / "netrc"
    settings.FEED_NETRC.write_text("machine 127.0.0.1 login bearer password secret\n")
    answers.bodies["/api/v2/alerts"] = b"[]"
    assert fetch(feed="alertmanager", url=answers.url) == b"[]"
    assert answers.asked[0][1] == "Bearer secret"
