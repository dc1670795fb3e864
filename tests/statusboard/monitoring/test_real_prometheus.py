"""A real Prometheus loses its target, and tells the portal by a real Alertmanager,
both as the documentation shows.
"""

import threading
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from django.core.cache import cache
from django.utils import timezone

from apps.statusboard.domain.monitoring.sources import create_source
from apps.statusboard.models import Incident, RawPayload
from dev.processes import free_port
from tests.factories.statusboard import service, states
from tests.programs.monitoring_servers import documented, running, wait

pytestmark = [pytest.mark.prometheus, pytest.mark.slow, pytest.mark.django_db(transaction=True)]

HEADING = "Connect Alertmanager"
SCRAPE = """
global: {{scrape_interval: 500ms, evaluation_interval: 500ms}}
rule_files: [{rules}]
scrape_configs: [{{job_name: samweb, static_configs: [{{targets: ["127.0.0.1:{target}"]}}]}}]
alerting: {{alertmanagers: [{{static_configs: [{{targets: ["127.0.0.1:{alertmanager}"]}}]}}]}}
"""


class Samweb(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def target():
    """Return a function that makes samweb answer, or not, at the port that is its attribute."""
    port, servers = free_port(), []

    def answer(up: bool) -> None:
        if up:
            server = ThreadingHTTPServer(("127.0.0.1", port), Samweb)
            threading.Thread(target=server.serve_forever, args=(0.01,)).start()
            servers.append(server)
        elif servers:
            server = servers.pop()
            server.shutdown()
            server.server_close()

    answer.port = port
    answer(True)
    yield answer
    answer(False)


@pytest.fixture
def source(tmp_path, live_server, target):
    """Start Alertmanager and Prometheus; return their source."""
    cache.clear()
    made, token = create_source(slug="prometheus", by="test", at=timezone.now())
    files = {
        name: tmp_path / name
        for name in ("token", "rules.yml", "prometheus.yml", "alertmanager.yml")
    }
    files["token"].write_text(token)
    files["rules.yml"].write_text(documented(HEADING, "groups:", {"for: 1m": "for: 1s"}))
    faster = {"group_wait: 10s": "group_wait: 100ms", "group_interval: 1m": "group_interval: 300ms"}
    places = {
        "https://opsportal.example": live_server.url,
        "/etc/alertmanager/opsportal-token": str(files["token"]),
    }
    files["alertmanager.yml"].write_text(documented(HEADING, "route:", faster | places))
    port = free_port()
    files["prometheus.yml"].write_text(
        SCRAPE.format(rules=files["rules.yml"], target=target.port, alertmanager=port)
    )
    alertmanager = (
        f"--config.file={files['alertmanager.yml']}",
        f"--storage.path={tmp_path / 'alerts'}",
        f"--web.listen-address=127.0.0.1:{port}",
        "--cluster.listen-address=",
    )
    prometheus = (
        f"--config.file={files['prometheus.yml']}",
        f"--storage.tsdb.path={tmp_path / 'series'}",
        f"--web.listen-address=127.0.0.1:{free_port()}",
        "--rules.alert.resend-delay=1s",
    )
    with (
        running(tmp_path / "alertmanager.log", "prometheus-alertmanager", *alertmanager),
        running(tmp_path / "prometheus.log", "prometheus", *prometheus),
    ):
        yield made


def test_lost_target_is_an_incident_until_it_answers_again(source, target):
    begin = timezone.now()
    samweb = service("samweb", begin - timedelta(hours=1), source=source)
    wait(lambda: RawPayload.objects.filter(state="parsed").exists(), "the heartbeat")
    source.refresh_from_db()
    assert (source.sends_heartbeats, Incident.objects.exists()) == (True, False)

    killed = timezone.now()
    target(False)
    wait(Incident.objects.exists, "the outage")
    incident = Incident.objects.get()
    assert (incident.service, incident.state, incident.title) == (
        samweb,
        "down",
        "samweb does not answer",
    )
    assert killed < incident.started_at < timezone.now()
    assert incident.is_open

    target(True)
    wait(lambda: not Incident.objects.get().is_open, "its end")
    incident = Incident.objects.get()
    assert incident.resolution == "resolved"
    assert [state for state, _ in states(samweb, incident.started_at)] == ["down", "up", "unknown"]
    assert set(RawPayload.objects.values_list("state", "notes", "unmapped")) == {("parsed", "", 0)}
