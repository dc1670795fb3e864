"""A real Icinga 2 checks a service; it notifies the portal, and is asked by it,
as the documentation shows.
"""

from datetime import timedelta
from pathlib import Path

import pytest
from django.core.cache import cache
from django.utils import timezone

from apps.statusboard.domain.monitoring.pulls import pull_source
from apps.statusboard.domain.monitoring.rules import add_rule
from apps.statusboard.domain.monitoring.source_fetch import PullFailed, fetch
from apps.statusboard.domain.monitoring.sources import create_source
from apps.statusboard.models import Incident, MonitoringSource, RawPayload
from dev.processes import free_port
from tests.factories.statusboard import service
from tests.programs.certificates import self_signed
from tests.programs.monitoring_servers import documented, running, wait

pytestmark = [pytest.mark.icinga2, pytest.mark.slow, pytest.mark.django_db(transaction=True)]

MAIN = """
const NodeName = "127.0.0.1"
const ZoneName = NodeName
include <itl>
object Endpoint NodeName {{ }}
object Zone ZoneName {{ endpoints = [ NodeName ] }}
object CheckerComponent "checker" {{ }}
object NotificationComponent "notification" {{ }}
object ApiListener "api" {{ bind_host = "127.0.0.1"; bind_port = {port} }}
object CheckCommand "ok" {{ command = [ "/bin/true" ] }}
object CheckCommand "probe" {{ command = [ "/bin/sh", "{at}/probe" ] }}
object Host "sam1" {{ check_command = "ok" }}
object Service "samweb" {{
  host_name = "sam1"
  check_command = "probe"
  max_check_attempts = 1
  check_interval = 500ms
}}
{documented}
"""


@pytest.fixture
def icinga(tmp_path, live_server, settings, monkeypatch):
    """Start Icinga with a check that succeeds; return its directory and its source."""
    cache.clear()
    port = free_port()
    settings.FEED_HOSTS = ["127.0.0.1"]
    settings.FEED_NETRC = tmp_path / "netrc"
    settings.FEED_NETRC.write_text("machine 127.0.0.1 login opsportal password swordfish\n")
    source, token = create_source(
        slug="icinga2",
        by="test",
        at=timezone.now(),
        feed="icinga2",
        pull_url=f"https://127.0.0.1:{port}",
    )
    certificates = tmp_path / "data" / "certs"
    for directory in (certificates, tmp_path / "cache", tmp_path / "run"):
        directory.mkdir(parents=True)
    certificate, key = self_signed(tmp_path, "IP:127.0.0.1")
    key.rename(certificates / "127.0.0.1.key")
    for name in ("127.0.0.1.crt", "ca.crt"):
        (certificates / name).write_bytes(certificate.read_bytes())
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    header = tmp_path / "header"
    header.write_text(f"Authorization: Bearer {token}\n")
    places = {
        "https://opsportal.example": live_server.url,
        "/etc/icinga2/opsportal-header": str(header),
    }
    config = documented(
        "Connect Icinga 2", "object NotificationCommand", places | {"…": "swordfish"}
    )
    (tmp_path / "icinga2.conf").write_text(MAIN.format(at=tmp_path, port=port, documented=config))
    answer(tmp_path, 0)
    owner = {"RunAsUser": tmp_path.owner(), "RunAsGroup": tmp_path.group(), "ConfigDir": tmp_path}
    data = dict.fromkeys(("DataDir", "SpoolDir", "LogDir"), tmp_path / "data")
    scratch = {
        "CacheDir": tmp_path / "cache",
        "InitRunDir": tmp_path / "run",
        "PidPath": tmp_path / "run/pid",
    }
    defined = [
        f"-DConfiguration.{name}={value}" for name, value in (owner | data | scratch).items()
    ]
    with running(
        tmp_path / "log", "icinga2", "daemon", "-c", str(tmp_path / "icinga2.conf"), *defined
    ):
        wait(lambda: answers(source), "Icinga to be ready")
        yield tmp_path, source


def answers(source: MonitoringSource) -> bool:
    try:
        return b"results" in fetch(feed=source.feed, url=source.pull_url)
    except PullFailed:
        return False


def answer(directory: Path, code: int) -> None:
    """Set what the check says from now on."""
    new = directory / "probe.new"
    new.write_text(f"echo 'SAM \"answers\" {code}'\nexit {code}\n")
    new.rename(directory / "probe")


def pulled(source: MonitoringSource) -> None:
    """Ask Icinga and wait until the answer is read."""
    pull_source(source_id=source.pk)
    wait(lambda: RawPayload.objects.latest("pk").state == "parsed", "the answer")
    source.refresh_from_db()
    assert (source.pull_error, RawPayload.objects.latest("pk").notes) == ("", "")


def test_notification_opens_an_incident_that_polling_icinga_closes(icinga, shifter):
    directory, source = icinga
    samweb = service("samweb", timezone.now() - timedelta(hours=1), source=source)
    add_rule(
        source=source, matchers={"check": "samweb"}, service=samweb, by=shifter, at=timezone.now()
    )
    answer(directory, 2)
    wait(Incident.objects.exists, "the problem")
    incident = Incident.objects.get()
    assert (incident.service, incident.state, incident.text) == (samweb, "down", 'SAM "answers" 2')
    assert abs(incident.started_at - timezone.now()) < timedelta(minutes=1)

    pulled(source)  # it lists the problem: by both it is the same episode
    assert (Incident.objects.count(), Incident.objects.get().is_open) == (1, True)

    answer(directory, 0)
    wait(lambda: not Incident.objects.get().is_open, "the recovery")
    assert Incident.objects.get().resolution == "resolved"

    # From now on notifications are lost.
    (directory / "header").write_text("Authorization: Bearer wrong\n")
    answer(directory, 1)
    wait(lambda: pulled(source) or Incident.objects.count() > 1, "the second problem")
    second = Incident.objects.latest("pk")
    assert (second.service, second.state, second.is_open) == (samweb, "degraded", True)
    answer(directory, 0)
    wait(lambda: pulled(source) or not Incident.objects.latest("pk").is_open, "its end")
    assert Incident.objects.latest("pk").resolution == "missing"
