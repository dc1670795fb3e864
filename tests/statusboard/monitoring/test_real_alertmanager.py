"""A real Alertmanager on loopback posts to the portal's own server."""

import json
import time
import urllib.request
from datetime import timedelta

import pytest
from django.core.cache import cache
from django.utils import timezone

from apps.statusboard.api import views
from apps.statusboard.domain.monitoring.alerts import mark_stale_incidents
from apps.statusboard.domain.monitoring.intake import accept_payload
from apps.statusboard.domain.monitoring.pulls import pull_source
from apps.statusboard.domain.monitoring.sources import create_source
from apps.statusboard.models import Incident, MonitoringSource, RawPayload
from dev.processes import free_port
from tests.factories.statusboard import service, states
from tests.programs.monitoring_servers import running, wait

pytestmark = [pytest.mark.alertmanager, pytest.mark.slow, pytest.mark.django_db(transaction=True)]

CONFIG = """
route:
  receiver: portal
  group_by: [alertname]
  group_wait: 100ms
  group_interval: 300ms
  repeat_interval: 1s
receivers:
  - name: portal
    webhook_configs:
      - url: {url}/api/v1/feeds/prometheus/
        send_resolved: true
        http_config:
          authorization:
            credentials: {token}
"""


class Alertmanager:
    def __init__(self, port: int) -> None:
        self.address = f"http://127.0.0.1:{port}"

    def call(self, path: str, data: object = None) -> object:
        body = None if data is None else json.dumps(data).encode()
        request = urllib.request.Request(
            self.address + path, body, {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=30) as answer:
            return json.loads(answer.read() or b"null")

    def tell(self, name: str, start, end=None, **labels: str) -> None:
        """Fire an alert, or resolve it by giving its end; without one it lasts five minutes."""
        end = end or start + timedelta(minutes=5)
        one = {
            "labels": {"alertname": name, **labels},
            "annotations": {"summary": f"{name} is seen"},
            "startsAt": start.isoformat(),
            "endsAt": end.isoformat(),
            "generatorURL": "http://prometheus.example/graph",
        }
        self.call("/api/v2/alerts", [one])

    def silence(self, name: str, now) -> None:
        matcher = {"name": "alertname", "value": name, "isRegex": False, "isEqual": True}
        span = {"startsAt": now.isoformat(), "endsAt": (now + timedelta(hours=1)).isoformat()}
        self.call(
            "/api/v2/silences",
            {"matchers": [matcher], **span, "createdBy": "test", "comment": "test"},
        )


@pytest.fixture
def source(transactional_db):
    cache.clear()
    made, token = create_source(slug="prometheus", by="test", at=timezone.now(), lease_seconds=600)
    made.token = token
    return made


@pytest.fixture
def alertmanager(tmp_path, live_server, source):
    config = tmp_path / "alertmanager.yml"
    config.write_text(CONFIG.format(url=live_server.url, token=source.token))
    port = free_port()
    arguments = [
        f"--config.file={config}",
        f"--storage.path={tmp_path / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}",
        "--cluster.listen-address=",
    ]
    with running(tmp_path / "log", "prometheus-alertmanager", *arguments):
        server = Alertmanager(port)
        wait(lambda: ready(server), "Alertmanager to be ready")
        yield server


def ready(alertmanager: Alertmanager) -> bool:
    try:
        alertmanager.call("/api/v2/status")
    except OSError:
        return False
    return True


def test_alert_opens_and_closes_an_incident_with_its_own_times(alertmanager, source):
    start = timezone.now() - timedelta(minutes=2)
    samweb = service("samweb", start - timedelta(hours=1), source=source)
    alertmanager.tell("SamwebDown", start, service="samweb", severity="critical")
    wait(Incident.objects.exists, "an incident")
    incident = Incident.objects.get()
    assert (incident.service, incident.state, incident.title) == (
        samweb,
        "down",
        "SamwebDown is seen",
    )
    assert abs(incident.started_at - start) < timedelta(milliseconds=1)
    assert incident.is_open

    end = timezone.now()
    alertmanager.tell("SamwebDown", start, end, service="samweb", severity="critical")
    wait(lambda: Incident.objects.filter(resolution="resolved").exists(), "its end")
    incident.refresh_from_db()
    assert abs(incident.ended_at - end) < timedelta(milliseconds=1)
    assert [state for state, _ in states(samweb, start)] == ["down", "up", "unknown"]
    assert set(RawPayload.objects.values_list("state", "notes")) == {("parsed", "")}


def test_alert_that_goes_on_is_repeated_and_prolongs_its_lease(alertmanager, source):
    start = timezone.now()
    service("samweb", start, source=source)
    alertmanager.tell("SamwebDown", start, service="samweb")
    wait(Incident.objects.exists, "an incident")
    lease = Incident.objects.get().lease_expires_at
    wait(lambda: Incident.objects.get().lease_expires_at > lease, "a repetition")
    assert Incident.objects.count() == 1


def test_alert_silenced_before_its_end_lapses_to_unknown_and_is_never_up(alertmanager, source):
    start = timezone.now()
    samweb = service("samweb", start, source=source)
    alertmanager.tell("SamwebDown", start, service="samweb")
    wait(Incident.objects.exists, "an incident")
    alertmanager.silence("SamwebDown", timezone.now())
    alertmanager.tell("SamwebDown", start, timezone.now(), service="samweb")
    time.sleep(2)
    wait(lambda: True, "what is still to be read")
    incident = Incident.objects.get()
    assert incident.is_open
    assert mark_stale_incidents(at=incident.lease_expires_at) == 1
    assert [state for state, _ in states(samweb, incident.lease_expires_at)] == ["unknown"]


def test_alert_silenced_before_its_end_is_closed_when_the_state_is_fetched(
    alertmanager, source, settings
):
    settings.FEED_HOSTS = ["127.0.0.1"]
    MonitoringSource.objects.update(pull_url=alertmanager.address)
    start = timezone.now()
    service("samweb", start, source=source)
    alertmanager.tell("SamwebDown", start, service="samweb")
    wait(Incident.objects.exists, "an incident")
    alertmanager.silence("SamwebDown", timezone.now())
    pull_source(source_id=source.pk)
    wait(lambda: MonitoringSource.objects.get().pulled_at, "the first answer")
    assert Incident.objects.get().is_open  # silenced, and goes on

    alertmanager.tell("SamwebDown", start, timezone.now(), service="samweb")
    pull_source(source_id=source.pk)
    wait(lambda: not Incident.objects.get().is_open, "its end")
    assert Incident.objects.get().resolution == "missing"
    assert MonitoringSource.objects.get().pull_error == ""


def test_alert_that_could_not_be_stored_is_sent_again(alertmanager, source, monkeypatch):
    failed = []

    def fail_once(**given):
        if not failed:
            failed.append(given)
            raise OSError
        return accept_payload(**given)

    monkeypatch.setattr(views, "accept_payload", fail_once)
    start = timezone.now()
    service("samweb", start, source=source)
    alertmanager.tell("SamwebDown", start, service="samweb")
    wait(Incident.objects.exists, "an incident")
    assert failed


def test_watchdog_is_heard_as_a_heartbeat(alertmanager, source):
    alertmanager.tell("Watchdog", timezone.now(), severity="none")
    wait(lambda: RawPayload.objects.filter(state="parsed").exists(), "a heartbeat")
    source.refresh_from_db()
    assert source.sends_heartbeats
    assert source.covered_until > timezone.now() + timedelta(minutes=14)
    assert not Incident.objects.exists()
