"""Queries of web servers end."""

import pytest
from django.db import OperationalError, connection
from django.db.backends.signals import connection_created

from opsportal import statements
from opsportal.statements import limit_statements


@pytest.fixture
def limited(monkeypatch, transactional_db):
    """Connections of this test end statements after a second."""
    monkeypatch.setattr(statements, "STATEMENT_SECONDS", 1)
    limit_statements()
    connection.close()
    yield
    connection_created.disconnect(dispatch_uid="statement-timeout")
    connection.close()


def test_statement_is_cancelled_in_a_web_server(limited, client, monkeypatch):
    def sleep(*_, **__):
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_sleep(30)")

    with pytest.raises(OperationalError, match="statement timeout"):
        sleep()
    client.raise_request_exception = False
    monkeypatch.setattr("apps.core.web.views.check_readiness", sleep)
    answer = client.get("/readyz")
    assert answer.status_code == 503
    assert "This took too long and was stopped." in answer.content.decode()
