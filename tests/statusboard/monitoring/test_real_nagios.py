"""A real Nagios 4 checks a service, and posts by its notification command to the portal's own
server.
"""

import os
import shutil
import subprocess
import time
from datetime import timedelta
from pathlib import Path

import pytest
from django.core.cache import cache
from django.utils import timezone

from apps.statusboard.domain.monitoring.intake import pump
from apps.statusboard.domain.monitoring.payloads import parse_payload, receive_payload
from apps.statusboard.domain.monitoring.rules import add_rule
from apps.statusboard.domain.monitoring.sources import create_source
from apps.statusboard.models import Incident
from apps.statusboard.tasks import parse_waiting
from dev.system_parts import PATH
from tests.factories.statusboard import service

pytestmark = [pytest.mark.nagios, pytest.mark.slow, pytest.mark.django_db(transaction=True)]

DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
OBJECTS = """
define timeperiod {{
  timeperiod_name always
  alias always
  {days}
}}
define command {{
  command_name ok
  command_line /bin/true
}}
define command {{
  command_name probe
  command_line /bin/sh {at}/probe
}}
define command {{
  command_name opsportal
  command_line env | grep ^NAGIOS_ | curl -s -H "Authorization: Bearer $(cat {at}/token)" --data-binary @- {url}
}}
define contact {{
  contact_name opsportal
  host_notification_period always
  service_notification_period always
  host_notification_options d,u,r,f
  service_notification_options w,u,c,r,f
  host_notification_commands opsportal
  service_notification_commands opsportal
}}
define host {{
  host_name sam1
  address 127.0.0.1
  check_command ok
  max_check_attempts 1
  check_period always
  notification_period always
  contacts opsportal
}}
define service {{
  host_name sam1
  service_description samweb
  check_command probe
  max_check_attempts 1
  check_interval 1
  retry_interval 1
  check_period always
  notification_period always
  contacts opsportal
}}
"""
MAIN = """
log_file={at}/log
cfg_file={at}/objects.cfg
object_cache_file={at}/objects.cache
status_file={at}/status.dat
status_update_interval=1
nagios_user={user}
nagios_group={group}
lock_file={at}/lock
temp_file={at}/temporary
temp_path={at}
check_result_path={at}
state_retention_file={at}/retention
query_socket={at}/query
command_file={at}/command
check_external_commands=0
enable_environment_macros=1
interval_length=1
max_service_check_spread=1
use_syslog=0
check_for_updates=0
check_workers=1
"""


@pytest.fixture
def nagios(tmp_path, live_server):
    """Start Nagios with a check that fails; return its directory and its source."""
    cache.clear()
    source, token = create_source(slug="nagios", by="test", at=timezone.now(), feed="nagios")
    days = "\n  ".join(f"{day} 00:00-24:00" for day in DAYS)
    url = f"{live_server.url}/api/v1/feeds/nagios/"
    (tmp_path / "token").write_text(token)
    (tmp_path / "objects.cfg").write_text(OBJECTS.format(days=days, at=tmp_path, url=url))
    (tmp_path / "nagios.cfg").write_text(
        MAIN.format(at=tmp_path, user=tmp_path.owner(), group=tmp_path.group())
    )
    answer(tmp_path, 2)
    with (tmp_path / "out").open("wb") as out:
        command = [shutil.which("nagios4", path=PATH), str(tmp_path / "nagios.cfg")]
        process = subprocess.Popen(
            command, stdout=out, stderr=out, env=os.environ | {"no_proxy": "*"}
        )
    try:
        yield tmp_path, source
    finally:
        process.terminate()
        process.wait(timeout=60)
        print((tmp_path / "out").read_text()[-2000:])


def answer(directory: Path, code: int) -> None:
    """Set what the check says from now on."""
    new = directory / "probe.new"
    new.write_text(f"echo SAM answers {code}\nexit {code}\n")
    new.rename(directory / "probe")


def wait(is_so, what: str) -> None:
    """Wait for the incident; meanwhile do the work of web server and worker."""
    ends = time.monotonic() + 60
    while time.monotonic() < ends:
        pump()
        parse_waiting()
        if Incident.objects.exists() and is_so(Incident.objects.get()):
            return
        time.sleep(0.1)
    pytest.fail(f"waited for {what}")


def test_a_check_that_fails_opens_an_incident_and_its_recovery_closes_it(nagios, shifter):
    directory, source = nagios
    samweb = service("samweb", timezone.now() - timedelta(hours=1), source=source)
    add_rule(
        source=source, matchers={"check": "samweb"}, service=samweb, by=shifter, at=timezone.now()
    )
    wait(lambda incident: incident.is_open, "the problem")
    incident = Incident.objects.get()
    assert (incident.service, incident.state, incident.text) == (samweb, "down", "SAM answers 2")
    assert abs(incident.started_at - timezone.now()) < timedelta(minutes=1)

    # The file may be from before the check: it says when it was written.
    status = (directory / "status.dat").read_bytes()
    payload = receive_payload(source=source, body=status, at=timezone.now())
    assert parse_payload(payload_id=payload.pk).notes == ""
    assert (Incident.objects.count(), Incident.objects.get().is_open) == (1, True)

    answer(directory, 0)
    wait(lambda incident: not incident.is_open, "the recovery")
    assert Incident.objects.get().resolution == "resolved"
