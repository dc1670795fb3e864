"""Requests and readiness when a connection to PostgreSQL is lost, or its server is read-only."""

import pytest
from django.db import InternalError, OperationalError, close_old_connections, connection

from apps.core.domain import health
from apps.core.models import Heartbeat

KILL = "SELECT pg_terminate_backend(pg_backend_pid())"
MAKE_READ_ONLY = "SET SESSION default_transaction_read_only = on"


def execute(*statements: str) -> None:
    with connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)


@pytest.fixture
def tries(client, monkeypatch, transactional_db):
    """Return a function that lets the first try of a request to `/readyz` fail at a statement.

    It returns the list of tries.
    """
    client.raise_request_exception = False
    connection.close()

    def let_fail(*statements: str, every: bool = False) -> list[int]:
        tries: list[int] = []

        def readiness():
            tries.append(len(tries))
            if every or len(tries) == 1:
                execute(*statements)
            return []

        monkeypatch.setattr("apps.core.web.views.check_readiness", readiness)
        return tries

    yield let_fail
    connection.close()


@pytest.mark.parametrize(
    "statements",
    [[KILL], [MAKE_READ_ONLY, "DELETE FROM core_heartbeat"]],
    ids=["lost", "read-only"],
)
@pytest.mark.parametrize("method", ["get", "head"])
def test_request_without_effect_is_repeated_once(client, tries, statements, method):
    tried = tries(*statements)
    assert getattr(client, method)("/readyz").status_code == 200
    assert len(tried) == 2


def test_request_is_not_repeated_twice(client, tries):
    tried = tries(KILL, every=True)
    response = client.get("/readyz")
    assert (response.status_code, response.headers["Retry-After"]) == (503, "30")
    assert len(tried) == 2


def test_other_errors_are_not_repeated(client, tries):
    tried = tries("SELECT 1/0")
    assert client.get("/readyz").status_code == 500
    assert len(tried) == 1


def test_request_that_cannot_connect_is_not_repeated(client, tries, monkeypatch):
    tried = tries("SELECT 1")
    settings = connection.settings_dict
    away = {**settings["OPTIONS"], "host": "127.0.0.1", "port": "1"}
    connection.close()
    with monkeypatch.context() as patch:
        patch.setitem(settings, "OPTIONS", away)
        patch.setitem(settings, "HOST", "")
        assert client.get("/readyz").status_code == 503
    assert len(tried) == 1


@pytest.mark.parametrize("statements", [[KILL], [MAKE_READ_ONLY, "DELETE FROM core_heartbeat"]])
def test_post_is_never_repeated(client, monkeypatch, transactional_db, statements):
    calls = []

    def authenticate(**_):
        calls.append(1)
        execute(*statements)

    monkeypatch.setattr("django.contrib.auth.forms.authenticate", lambda *_, **__: authenticate())
    client.raise_request_exception = False
    response = client.post("/accounts/login/", {"username": "a", "password": "b"})
    assert response.status_code == 503
    assert "Retry-After" in response.headers
    assert len(calls) == 1
    connection.close()


def test_connection_whose_server_became_read_only_is_replaced(transactional_db):
    execute(MAKE_READ_ONLY)
    with pytest.raises(InternalError, match="read-only transaction"):
        Heartbeat.objects.create(name="a", at="2026-11-20T12:00Z", detail={})
    close_old_connections()  # as each request and each task begins
    Heartbeat.objects.create(name="a", at="2026-11-20T12:00Z", detail={})


def test_idle_connection_whose_server_became_read_only_is_replaced(transactional_db):
    execute(MAKE_READ_ONLY)
    close_old_connections()
    Heartbeat.objects.create(name="a", at="2026-11-20T12:00Z", detail={})


def test_readiness_tells_a_server_that_is_read_only(client, db):
    execute(MAKE_READ_ONLY, "SET TRANSACTION READ ONLY")
    response = client.get("/readyz")
    assert response.status_code == 503
    database = response.json()["checks"][0]
    assert database == {
        "name": "database",
        "ok": False,
        "detail": "read-only: it accepts no changes",
    }


def test_readiness_tells_that_there_is_no_primary(monkeypatch, db):
    error = OperationalError("connection failed: session is read-only")

    class Away:
        def cursor(self):
            raise error

    monkeypatch.setattr(health, "connection", Away())
    assert health.check_readiness()[0].detail == (
        "no primary: the servers that answer accept no changes"
    )
