from types import SimpleNamespace

import pytest

from tests.factories.requests import AT, request_in
from tests.notifications.mail_server import MailServerProcess
from tests.notifications.told import deliver, with_address


@pytest.fixture
def mail_server(tmp_path, settings):
    """A mail server that runs, to which the portal's settings lead."""
    directory = tmp_path / "mail"
    directory.mkdir()
    server = MailServerProcess(directory)
    settings.EMAIL_HOST, settings.EMAIL_PORT = "127.0.0.1", server.port
    settings.EMAIL_USE_TLS = settings.EMAIL_USE_SSL = False
    settings.EMAIL_HOST_USER = settings.EMAIL_HOST_PASSWORD = ""
    settings.DEFAULT_FROM_EMAIL = "opsportal@example.org"
    settings.PORTAL_URL = "https://portal.example.org"
    server.start()
    yield server
    server.kill()


@pytest.fixture(autouse=True)
def attention_by_the_tests_clock(monkeypatch):
    """What waits since AT waits for days by the real clock."""
    monkeypatch.setattr("apps.progress.subscribers.timezone", SimpleNamespace(now=lambda: AT))


@pytest.fixture
def waiting(nova, liaison, approver):
    """A request that waits for approval; nothing was told of it yet but what is delivered later."""
    with_address(liaison, approver)
    return request_in("awaiting_approval", by=liaison, experiment=nova, approver=approver, later=AT)


@pytest.fixture
def asked(waiting):
    """The same, with everybody told of it."""
    deliver()
    return waiting
