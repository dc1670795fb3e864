"""What a source no longer reports when it is asked is closed; a question that fails is shown,
and closes nothing.
"""

import gzip
import json
import socket
import threading
import time
from collections.abc import Iterator
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from django.core.cache import cache
from django.utils import timezone

from apps.core.errors import InvalidFields
from apps.statusboard.domain.monitoring import source_fetch
from apps.statusboard.domain.monitoring.payloads import parse_payload, receive_payload
from apps.statusboard.domain.monitoring.pulls import pull_source
from apps.statusboard.domain.monitoring.rules import add_rule
from apps.statusboard.domain.monitoring.source_fetch import PullFailed, fetch
from apps.statusboard.domain.monitoring.sources import create_source
from apps.statusboard.feeds.registry import FEEDS
from apps.statusboard.models import Incident, MonitoringSource, RawPayload
from tests.factories.statusboard import alert, post, service, source
from tests.programs.dripping_server import (
    BODY,
    HEADERS,
    LONG_BODY,
    PATIENCE_SECONDS,
    TLS_HANDSHAKE,
    dripping,
)

HOUR = timedelta(hours=1)
MINUTE = timedelta(minutes=1)


class Answers:
    """A source on loopback: what it answers by path,
    and what it was asked with which credentials.
    """

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self.bodies: dict[str, Any] = {}
        self.asked: list[tuple[str, str | None]] = []
        self.posted: list[Any] = []


@pytest.fixture
def answers() -> Iterator[Answers]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found = self.server.answers
            found.asked.append((self.path, self.headers["Authorization"]))
            path, _, query = self.path.partition("?")
            answer = found.bodies.get(path, (404, b"", {}))
            answer = answer(query) if callable(answer) else answer
            status, body, headers = answer if isinstance(answer, tuple) else (200, answer, {})
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(body))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def do_POST(self) -> None:
            found = self.server.answers
            found.posted.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.do_GET()

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
    return (
        parse_payload(payload_id=RawPayload.objects.latest("pk").pk)
        if RawPayload.objects.count() > before
        else None
    )


def listed(*alerts: dict) -> bytes:
    """As Alertmanager's API lists alerts: with a state, and a fingerprint."""
    return json.dumps(
        [{**firing, "status": {"state": "suppressed", "silencedBy": ["x"]}} for firing in alerts]
    ).encode()


def test_alert_that_is_no_longer_listed_is_over_and_comes_back_if_it_is_reported_again(
    db, answers, settings, at
):
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
    # An older list says nothing of what was reported since.
    parse_payload(payload_id=payload.pk)
    incident.refresh_from_db()
    assert incident.is_open


def test_icinga_is_asked_for_hosts_and_services(db, answers, settings, at):
    settings.FEED_HOSTS = ["127.0.0.1"]
    made = source(at - HOUR, feed="icinga2", pull_url=answers.url)
    service("samweb", at - HOUR, source=made)
    state = {
        "name": "http",
        "host_name": "sam1",
        "state": 2,
        "state_type": 1,
        "last_hard_state_change": at.timestamp(),
    }
    problem = {"type": "Service", "name": "sam1!http", "attrs": {**state, "vars": {}}}
    answers.bodies["/v1/objects/hosts"] = b'{"results": []}'
    answers.bodies["/v1/objects/services"] = json.dumps({"results": [problem]}).encode()
    payload = pulled(made)
    assert (payload.state, payload.notes, payload.unmapped) == ("parsed", "", 1)


def nagios_answer(name: str, found: dict, of: float) -> bytes:
    """As statusjson.cgi of Nagios 4.4.6 answers: padded, with milliseconds."""
    result = {
        "cgi": "statusjson.cgi",
        "query": name,
        "last_data_update": int(of * 1000),
        "type_code": 0,
        "message": "",
    }
    return json.dumps(
        {"format_version": 0, "result": result, "data": {"selectors": {}, name: found}}, indent=2
    ).encode()


def test_nagios_is_asked_for_hosts_and_services_with_problems(db, answers, settings, at, shifter):
    settings.FEED_HOSTS = ["127.0.0.1"]
    made = source(at - HOUR, feed="nagios", pull_url=f"{answers.url}/cgi-bin/nagios4/")
    samweb = service("samweb", at - HOUR, source=made)
    add_rule(source=made, matchers={"check": "samweb"}, service=samweb, by=shifter, at=at)
    add_rule(source=made, matchers={"host": "sam1"}, service=samweb, by=shifter, at=at)
    changed = {
        "state_type": 1,
        "last_hard_state_change": int(at.timestamp() * 1000),
        "plugin_output": "no answer",
    }
    critical = {"host_name": "sam2", "description": "samweb", "status": 16, **changed}
    soft = critical | {"description": "soft", "state_type": 0}
    hosts, services = (
        {"sam1": {"name": "sam1", "status": 4, **changed}},
        {"sam2": {"samweb": critical, "soft": soft}},
    )
    now = (at + HOUR).timestamp()
    path = "/cgi-bin/nagios4/statusjson.cgi"

    def answer(query: str) -> bytes:
        name, found = (
            ("hostlist", hosts) if "query=hostlist" in query else ("servicelist", services)
        )
        return nagios_answer(name, found, now)

    answers.bodies[path] = answer
    payload = pulled(made)
    assert (payload.state, payload.notes, payload.unmapped) == ("parsed", "", 0)
    rows = Incident.objects.order_by("dedup_key").values_list(
        "dedup_key", "state", "text", "ended_at"
    )
    assert list(rows) == [
        ("sam1", "down", "no answer", None),
        ("sam2!samweb", "down", "no answer", None),
    ]
    assert {row.started_at for row in Incident.objects.all()} == {at}
    hosts.clear()
    now = timezone.now().timestamp()
    pulled(made)
    ended = dict(Incident.objects.values_list("dedup_key", "resolution"))
    assert ended == {"sam1": "missing", "sam2!samweb": ""}
    answers.bodies[path] = nagios_answer("hostlist", {}, now).replace(
        b'"type_code": 0', b'"type_code": 6'
    )
    assert pulled(made).state == "failed"
    assert Incident.objects.get(dedup_key="sam2!samweb").is_open


def test_file_of_nagios_is_fetched_as_it_is(settings):
    assert FEEDS.get("nagios").addresses("https://nagios.example/status.dat") == [
        "https://nagios.example/status.dat"
    ]


def test_zabbix_is_asked_for_problems_and_their_hosts(db, answers, settings, at, tmp_path, shifter):
    settings.FEED_HOSTS = ["127.0.0.1"]
    settings.FEED_NETRC = tmp_path / "netrc"
    settings.FEED_NETRC.write_text("machine 127.0.0.1 login bearer password secret\n")
    made = source(at - HOUR, feed="zabbix", pull_url=f"{answers.url}/zabbix")
    samweb = service("samweb", at - HOUR, source=made)
    add_rule(source=made, matchers={"host": "sam1"}, service=samweb, by=shifter, at=at)
    problem = {
        "eventid": "1245463",
        "objectid": "15112",
        "clock": str(int(at.timestamp())),
        "name": "samweb does not answer",
        "severity": "4",
        "tags": [{"tag": "scope", "value": "availability"}],
    }
    hosts = [{"triggerid": "15112", "hosts": [{"hostid": "10084", "host": "sam1"}]}]
    problems = {"jsonrpc": "2.0", "result": [problem], "id": 1}
    triggers = {"jsonrpc": "2.0", "result": hosts, "id": 2}
    answers.bodies["/zabbix/api_jsonrpc.php"] = json.dumps([problems, triggers]).encode()
    payload = pulled(made)
    assert (payload.state, payload.notes, payload.unmapped) == ("parsed", "", 0)
    assert answers.asked == [("/zabbix/api_jsonrpc.php", "Bearer secret")]
    assert [one["method"] for one in answers.posted[0]] == ["problem.get", "trigger.get"]
    incident = Incident.objects.get()
    assert (incident.service, incident.state, incident.started_at) == (samweb, "down", at)
    # The event that Zabbix exported is the same problem.
    exported = {
        "value": 1,
        **problem,
        "clock": int(problem["clock"]),
        "eventid": 1245463,
        "hosts": [{"host": "sam1"}],
    }
    parse_payload(
        payload_id=receive_payload(
            source=made, body=json.dumps(exported).encode(), at=timezone.now()
        ).pk
    )
    assert Incident.objects.count() == 1

    refused = {
        "jsonrpc": "2.0",
        "error": {"code": -32602, "message": "Invalid params.", "data": "Not authorized."},
    }
    answers.bodies["/zabbix/api_jsonrpc.php"] = json.dumps([refused | {"id": 1}, triggers]).encode()
    payload = pulled(made)
    assert (payload.state, payload.notes) == ("failed", "Zabbix answers Not authorized.")
    assert Incident.objects.get().is_open
    problems["result"] = []
    answers.bodies["/zabbix/api_jsonrpc.php"] = json.dumps([problems, triggers]).encode()
    pulled(made)
    assert Incident.objects.get().resolution == "missing"


def test_status_page_of_uptime_kuma_ends_what_its_webhook_did_not(
    db, answers, settings, at, shifter
):
    settings.FEED_HOSTS = ["127.0.0.1"]
    with pytest.raises(InvalidFields):
        create_source(
            slug="kuma", by="test", at=at, feed="uptime-kuma", pull_url=f"{answers.url}/dashboard"
        )
    made = source(at - HOUR, feed="uptime-kuma", pull_url=f"{answers.url}/status/farm")
    samweb = service("samweb", at - HOUR, source=made)
    add_rule(source=made, matchers={"monitor": "samweb"}, service=samweb, by=shifter, at=at)

    def beat(status: int, minute: int) -> dict:
        return {
            "status": status,
            "time": f"{at + minute * MINUTE:%Y-%m-%d %H:%M:%S}.120",
            "msg": "",
            "ping": None,
        }

    monitors = [
        {"id": 10, "name": "samweb", "sendUrl": 0, "type": "http"},
        {"id": 11, "name": "new", "type": "http"},
    ]
    groups = [{"id": 1, "name": "Services", "weight": 1, "monitorList": monitors}]
    page = {
        "config": {"slug": "farm"},
        "incident": None,
        "publicGroupList": groups,
        "maintenanceList": [],
    }
    beats = {"10": [beat(1, -1), beat(0, 0), beat(0, 1)], "11": []}
    answers.bodies["/api/status-page/farm"] = json.dumps(page).encode()
    heartbeats = "/api/status-page/heartbeat/farm"
    answers.bodies[heartbeats] = json.dumps(
        {"heartbeatList": beats, "uptimeList": {"10_24": 0.9}}
    ).encode()
    payload = pulled(made)
    assert (payload.state, payload.notes, payload.unmapped) == ("parsed", "", 0)
    incident = Incident.objects.get()
    assert (incident.service, incident.state, incident.started_at) == (
        samweb,
        "down",
        at.replace(microsecond=0),
    )
    sent = {"monitor": {"id": 10, "name": "samweb"}, "heartbeat": beat(0, 0), "msg": "down"}
    parse_payload(
        payload_id=receive_payload(
            source=made, body=json.dumps(sent).encode(), at=timezone.now()
        ).pk
    )
    other = {
        "monitor": {"id": 12, "name": "samweb"},
        "heartbeat": beat(0, 0),
        "msg": "not on the page",
    }
    parse_payload(
        payload_id=receive_payload(
            source=made, body=json.dumps(other).encode(), at=timezone.now()
        ).pk
    )
    assert Incident.objects.filter(ended_at=None).count() == 2

    beats["10"].append(beat(1, 2))
    answers.bodies[heartbeats] = json.dumps({"heartbeatList": beats, "uptimeList": {}}).encode()
    pulled(made)
    incident.refresh_from_db()
    assert (incident.resolution, incident.ended_at) == (
        "resolved",
        at.replace(microsecond=0) + 2 * MINUTE,
    )
    assert Incident.objects.get(dedup_key="monitor 12").is_open


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


@pytest.mark.parametrize(
    ("scheme", "beginning"),
    [("https", TLS_HANDSHAKE), ("http", HEADERS), ("http", BODY), ("http", LONG_BODY)],
)
def test_answer_that_drips_is_cut_off(settings, monkeypatch, scheme, beginning):
    settings.FEED_HOSTS = ["127.0.0.1"]
    monkeypatch.setattr(source_fetch, "SECONDS", 0.5)
    begun = time.monotonic()
    with dripping(beginning) as port, pytest.raises(PullFailed, match="takes longer than"):
        fetch(feed="alertmanager", url=f"{scheme}://127.0.0.1:{port}")
    assert time.monotonic() - begun < PATIENCE_SECONDS


def test_answer_that_was_cut_short_or_compressed_is_refused(answers, settings):
    settings.FEED_HOSTS = ["127.0.0.1"]
    answers.bodies["/api/v2/alerts"] = (
        200,
        gzip.compress(b" " * 50_000_000),
        {"Content-Encoding": "gzip"},
    )
    with pytest.raises(PullFailed, match="compressed"):
        fetch(feed="alertmanager", url=answers.url)
    with socket.create_server(("127.0.0.1", 0)) as server:
        cut_short = threading.Thread(target=_answer_half, args=(server,))
        cut_short.start()
        with pytest.raises(PullFailed, match="2 bytes read, 8 more expected"):
            fetch(feed="alertmanager", url=f"http://127.0.0.1:{server.getsockname()[1]}")
        cut_short.join()


def _answer_half(server: socket.socket) -> None:
    client, _ = server.accept()
    with client:
        client.recv(65_536)
        client.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n[]")


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
        create_source(
            slug="x", by="test", at=at, feed="grafana", pull_url="https://elsewhere.example/"
        )
    assert answers.asked == []
    settings.FEED_HOSTS = [answers.url.removeprefix("http://")]
    settings.FEED_NETRC = tmp_path / "netrc"
    settings.FEED_NETRC.write_text("machine 127.0.0.1 login bearer password secret\n")
    answers.bodies["/api/v2/alerts"] = b"[]"
    assert fetch(feed="alertmanager", url=answers.url) == b"[]"
    assert answers.asked[0][1] == "Bearer secret"
