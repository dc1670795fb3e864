"""A real Zabbix checks a service; it notifies the portal, and is asked by it,
as the documentation shows.
"""

import gzip
import shutil
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
import urllib3
from django.core.cache import cache
from django.db import connection
from django.utils import timezone

from apps.statusboard.domain.monitoring.payloads import parse_payload, receive_payload
from apps.statusboard.domain.monitoring.pulls import pull_source
from apps.statusboard.domain.monitoring.rules import add_rule
from apps.statusboard.domain.monitoring.sources import create_source
from apps.statusboard.models import Incident, MonitoringSource, RawPayload
from dev.processes import free_port
from tests.factories.statusboard import service
from tests.programs.monitoring_servers import documented, running, wait

pytestmark = [pytest.mark.zabbix, pytest.mark.slow, pytest.mark.django_db(transaction=True)]

FRONTEND, SQL = Path("/usr/share/zabbix"), Path("/usr/share/zabbix-server-pgsql")
#: Of Zabbix' own data; the rest are its templates, 170,000 rows.
TABLES = (
    "role",
    "role_rule",
    "users",
    "usrgrp",
    "users_groups",
    "hstgrp",
    "config",
    "config_autoreg_tls",
)
CONNECTION = """<?php
$DB = ['TYPE' => 'POSTGRESQL', 'SERVER' => '{host}', 'PORT' => '{port}', 'DATABASE' => '{name}'];
$DB += ['USER' => '{user}', 'PASSWORD' => '{password}', 'SCHEMA' => '', 'DOUBLE_IEEE754' => true];
"""
SERVER = """
AllowRoot=1
DBHost={host}
DBPort={port}
DBName={name}
DBUser={user}
DBPassword={password}
ExternalScripts={at}/scripts
LogType=console
PidFile={at}/pid
SocketDir={at}
ExportDir={at}/export
CacheUpdateFrequency=1
StartPollers=1
StartPollersUnreachable=1
StartPreprocessors=1
StartTrappers=0
StartPingers=0
StartDiscoverers=0
StartHTTPPollers=0
StartAlerters=1
StartDBSyncers=1
StartLLDProcessors=1
HousekeepingFrequency=0
"""


class Api:
    """The API of this Zabbix, asked as its administrator."""

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self.session: str | None = None

    def __call__(self, method: str, **given: Any) -> Any:
        asked = {
            "jsonrpc": "2.0",
            "id": 1,
            "method": method,
            "params": given.get("rows", given),
            "auth": self.session,
        }
        answer = urllib3.request(
            "POST", f"{self.url}/api_jsonrpc.php", json=asked, retries=False
        ).json()
        assert "result" in answer, answer
        return answer["result"]

    def is_ready(self) -> bool:
        try:
            self.session = None
            self.session = self("user.login", username="Admin", password="zabbix")
        except urllib3.exceptions.HTTPError:
            return False
        return True


@pytest.fixture
def database() -> Iterator[dict[str, str]]:
    """Create the database of Zabbix; return how it is reached."""
    of = connection.get_connection_params()
    given = {key: str(of.get(key) or "") for key in ("host", "user", "password")} | {
        "port": str(of.get("port") or 5432)
    }
    name = f"{of['dbname']}_zabbix"
    with connection.cursor() as cursor:
        cursor.execute(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')
        cursor.execute(f'CREATE DATABASE "{name}"')
    with psycopg.connect(
        dbname=name, autocommit=True, **{key: value for key, value in given.items() if value}
    ) as own:
        own.execute(gzip.decompress((SQL / "schema.sql.gz").read_bytes()))
        wanted = tuple(f"INSERT INTO {table} (" for table in TABLES)
        with gzip.open(SQL / "data.sql.gz", "rt") as data:
            own.execute("".join(line for line in data if line.startswith(wanted)).encode())
    yield given | {"name": name}
    with connection.cursor() as cursor:
        cursor.execute(f'DROP DATABASE "{name}" WITH (FORCE)')


@pytest.fixture
def zabbix(tmp_path, database, live_server, settings):
    """Start Zabbix with a check that succeeds; return its directory, its source and its API."""
    cache.clear()
    port = free_port()
    settings.FEED_HOSTS = ["127.0.0.1"]
    settings.FEED_NETRC = tmp_path / "netrc"
    source, token = create_source(
        slug="zabbix",
        by="test",
        at=timezone.now(),
        feed="zabbix",
        pull_url=f"http://127.0.0.1:{port}",
    )
    shutil.copytree(FRONTEND, tmp_path / "web", ignore=shutil.ignore_patterns("locale", "assets"))
    place = tmp_path / "web/include/classes/core/CConfigFile.php"
    place.write_text(
        place.read_text().replace("/etc/zabbix/zabbix.conf.php", str(tmp_path / "web.php"))
    )
    (tmp_path / "web.php").write_text(CONNECTION.format(**database))
    for name in ("scripts", "export"):
        (tmp_path / name).mkdir()
    (tmp_path / "scripts/probe").write_text(f"#!/bin/sh\ncat {tmp_path}/answer\n")
    (tmp_path / "scripts/probe").chmod(0o755)
    answer(tmp_path, 0)
    (tmp_path / "server.conf").write_text(SERVER.format(at=tmp_path, **database))
    api = Api(port)
    with running(tmp_path / "php", "php", "-S", f"127.0.0.1:{port}", "-t", str(tmp_path / "web")):
        wait(api.is_ready, "the API of Zabbix")
        configure(api, live_server.url, token)
        made = api("token.create", name="opsportal")["tokenids"]
        password = api("token.generate", rows=made)[0]["token"]
        settings.FEED_NETRC.write_text(f"machine 127.0.0.1 login auth password {password}\n")
        with running(tmp_path / "log", "zabbix_server", "-f", "-c", str(tmp_path / "server.conf")):
            yield tmp_path, source, api


def configure(api: Api, url: str, token: str) -> None:
    """Have a host checked every second, and the documented medium notified."""
    medium = documented("Connect Zabbix", "zabbix_export:", {"https://opsportal.example": url})
    rules = {"mediaTypes": {"createMissing": True}}
    api("configuration.import", format="yaml", rules=rules, source=medium)
    medium_id = api("mediatype.get", filter={"name": "opsportal"})[0]["mediatypeid"]
    api("usermacro.createglobal", macro="{$OPSPORTAL_TOKEN}", value=token, type=1)
    user_id = api("user.get", filter={"username": "Admin"})[0]["userid"]
    api("user.update", userid=user_id, medias=[{"mediatypeid": medium_id, "sendto": "opsportal"}])
    notified = {
        "operationtype": 0,
        "opmessage": {"default_msg": 1},
        "opmessage_usr": [{"userid": user_id}],
    }
    recovered = {"operationtype": 11, "opmessage": {"default_msg": 1}}
    api(
        "action.create",
        name="opsportal",
        eventsource=0,
        operations=[notified],
        recovery_operations=[recovered],
    )
    group = api("hostgroup.get", filter={"name": "Linux servers"})[0]["groupid"]
    interface = {"type": 1, "main": 1, "useip": 1, "ip": "127.0.0.1", "dns": "", "port": "10050"}
    host = api("host.create", host="sam1", groups=[{"groupid": group}], interfaces=[interface])[
        "hostids"
    ][0]
    interface_id = api("hostinterface.get", hostids=host)[0]["interfaceid"]
    check = {
        "type": 10,
        "value_type": 3,
        "delay": "1s",
        "history": "1d",
        "trends": "0",
        "interfaceid": interface_id,
    }
    api("item.create", hostid=host, name="samweb", key_="probe", **check)
    api(
        "trigger.create",
        description='SAM is "away"',
        expression="last(/sam1/probe)>0",
        priority=4,
        tags=[{"tag": "service", "value": "samweb"}],
    )


def answer(directory: Path, code: int) -> None:
    """Set what the check says from now on."""
    new = directory / "answer.new"
    new.write_text(f"{code}\n")
    new.rename(directory / "answer")


def pulled(source: MonitoringSource) -> None:
    """Ask Zabbix and wait until the answer is read."""
    pull_source(source_id=source.pk)
    wait(lambda: RawPayload.objects.latest("pk").state == "parsed", "the answer")
    source.refresh_from_db()
    assert (source.pull_error, RawPayload.objects.latest("pk").notes) == ("", "")


def test_notification_opens_an_incident_that_polling_zabbix_closes(zabbix, shifter):
    directory, source, api = zabbix
    samweb = service("samweb", timezone.now() - timedelta(hours=1), source=source)
    add_rule(
        source=source, matchers={"host": "sam1"}, service=samweb, by=shifter, at=timezone.now()
    )
    answer(directory, 2)
    wait(Incident.objects.exists, "the problem")
    incident = Incident.objects.get()
    assert (incident.service, incident.state) == (samweb, "down")
    assert 'SAM is "away"' in (incident.title, incident.text)
    assert abs(incident.started_at - timezone.now()) < timedelta(minutes=1)

    pulled(source)  # it lists the problem: by both it is the same episode
    assert (Incident.objects.count(), Incident.objects.get().is_open) == (1, True)

    answer(directory, 0)
    wait(lambda: not Incident.objects.get().is_open, "the recovery")
    assert Incident.objects.get().resolution == "resolved"

    macro = api("usermacro.get", globalmacro=True, filter={"macro": "{$OPSPORTAL_TOKEN}"})[0][
        "globalmacroid"
    ]
    # From now on notifications are lost.
    api("usermacro.updateglobal", globalmacroid=macro, value="wrong")
    answer(directory, 1)
    wait(lambda: pulled(source) or Incident.objects.count() > 1, "the second problem")
    second = Incident.objects.latest("pk")
    assert (second.service, second.is_open) == (samweb, True)
    answer(directory, 0)
    wait(lambda: pulled(source) or not Incident.objects.latest("pk").is_open, "its end")
    assert Incident.objects.latest("pk").resolution == "missing"

    exported = b"".join(
        path.read_bytes() for path in (directory / "export").glob("problems-history-*.ndjson")
    )
    payload = receive_payload(source=source, body=exported, at=timezone.now())
    assert parse_payload(payload_id=payload.pk).notes == ""
    assert Incident.objects.count() == 2
