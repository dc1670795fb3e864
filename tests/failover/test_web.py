"""One of two web servers behind nginx or HAProxy is killed."""

import os
import shutil
import time
from contextlib import ExitStack

import pytest
from django.db import connection
from django.test import Client

from apps.accounts.models import User
from dev.processes import free_port, guard
from dev.system_parts import PATH
from tests.archive.workers import web
from tests.factories import people
from tests.failover.browser import Browser
from tests.failover.haproxy import start_haproxy
from tests.failover.proxy import start_proxy
from tests.failover.waiting import wait_for
from tests.upgrade.databases import url_of

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("failover")]
PROXIES = [
    pytest.param("nginx", marks=pytest.mark.nginx),
    pytest.param("haproxy", marks=pytest.mark.haproxy),
]
ZONES = ("Europe/Berlin", "UTC")


@pytest.fixture(params=PROXIES)
def servers(transactional_db, tmp_path, request):
    """Two web servers, and the proxy's port."""
    proxy = shutil.which(request.param, path=PATH)
    if proxy is None:
        pytest.skip(f"no {request.param} here")
    port = free_port()
    addresses = [f"127.0.0.1:{free_port()}" for _ in range(2)]
    run = tmp_path / "run"
    run.mkdir()
    with ExitStack() as stack:
        watchdog = guard(run)
        stack.callback(watchdog.wait, timeout=60)
        stack.callback(watchdog.stdin.close)
        processes = []
        for number, address in enumerate(addresses):
            environment = os.environ | {
                "DATABASE_URL": url_of(connection.settings_dict["NAME"]),
                "PORTAL_URL": f"http://{address}",
                "VAR_DIR": str(tmp_path / f"var{number}"),
                "DJANGO_SETTINGS_MODULE": "tests.failover.web_settings",
            }
            processes.append(stack.enter_context(web(environment, tmp_path)))
        listen = [f"127.0.0.1:{port}"]
        if request.param == "nginx":
            start_proxy(proxy, tmp_path / "nginx", run, listen, addresses)
        else:
            start_haproxy(
                proxy,
                tmp_path / "haproxy",
                run,
                listen=listen,
                web_servers=addresses,
                database=f"127.0.0.1:{free_port()}",
                databases=["127.0.0.1"] * 2,
            )
        for address in addresses:
            direct = Browser(int(address.rpartition(":")[2]))
            wait_for(lambda direct=direct: direct.answers("/readyz"))
        yield processes, port


def test_users_do_not_notice(servers):
    processes, port = servers
    browser = Browser(port)
    client = Client()
    client.force_login(people.person("ann"))
    browser.session = client.cookies["sessionid"].value
    use(browser)
    processes[0].kill()
    time.sleep(0.5)  # a change that it has received meanwhile is lost with it
    use(browser)


def use(browser: Browser) -> None:
    """Change a setting and read it, at both servers in turn."""
    for zone in ZONES * 3:
        assert browser.ask("POST", "/accounts/settings/", time_zone=zone)[0] == 302
        assert User.objects.get(username="ann").time_zone == zone
        assert browser.ask("GET", "/accounts/settings/")[0] == 200
