"""What the log holds of an outage of Redis, and how it writes times."""

import json
import logging
import re

import kombu.exceptions
import pytest
import redis.exceptions
from celery import Celery, current_app
from celery.contrib.testing.worker import start_worker
from django.conf import settings
from django.db import OperationalError
from django_guid import clear_guid, get_guid, set_guid
from django_guid.log_filters import CorrelationId

from apps.accounts.models import User
from apps.core.domain.background import celery_app
from apps.core.domain.secrets.log_formats import formatter
from apps.portal.web import views
from opsportal import logs

ID = "773fa6885e03493498077a273d1b7f2d"
AWAY = redis.exceptions.ConnectionError("Error 111 connecting to localhost:6379")


@pytest.fixture
def clock(monkeypatch):
    now = [1_000.0]
    monkeypatch.setattr(logs.time, "monotonic", lambda: now[0])
    return now


def record(text: str, error: Exception | None = None) -> logging.LogRecord:
    return logging.LogRecord(
        "x", logging.ERROR, "f", 1, text, (), (type(error), error, None) if error else None
    )


def wrapped() -> Exception:
    """An error as beat logs it."""
    try:
        raise RuntimeError("Couldn't apply scheduled task") from AWAY
    except RuntimeError as error:
        return error


def test_one_short_line_for_each_outage(clock):
    outage = logs.OutageFilter()
    kept: list[str] = []
    for second in [*range(50), *range(200, 300)]:
        clock[0] = second
        records = (
            record("consumer: Cannot connect to redis://: gone.\nTrying again in 2.00 seconds..."),
            record("Error calling it in on_commit()", kombu.exceptions.OperationalError("gone")),
            record("Internal Server Error: /", AWAY),
            record("Message Error: Couldn't apply scheduled task", wrapped()),
        )
        kept += [logging.Formatter().format(each) for each in records if outage.filter(each)]
    assert len(kept) == 2
    assert kept[0] == (
        "The queue (Redis) is unavailable; further errors are not logged. consumer: Cannot connect "
        "to redis://: gone."
    )


def test_other_errors_are_logged_meanwhile(clock):
    outage = logs.OutageFilter()
    assert outage.filter(record("x", AWAY))
    assert outage.filter(record("x", ValueError("a bug")))
    assert outage.filter(record("plain"))
    assert not outage.filter(record("y", AWAY))
    ended = record("Unrecoverable error", AWAY)
    ended.levelno = logging.CRITICAL
    assert outage.filter(ended), "a worker that ends of it must say so"


@pytest.fixture
def lines():
    """The lines that the console's filters leave of what Django logs about responses."""
    handler = logging.Handler()
    handler.addFilter(logs.RefusalFilter())
    written: list[str] = []
    handler.emit = lambda record: written.append(logging.Formatter().format(record))
    loggers = [logging.getLogger(name) for name in ("django.request", "django.security")]
    for logger in loggers:
        logger.addHandler(handler)
    yield written
    for logger in loggers:
        logger.removeHandler(handler)


def test_forbidden_page_is_one_line(client, liaison, lines):
    client.force_login(liaison)
    assert client.get("/health/").status_code == 403
    assert lines == ["Forbidden (Permission denied): /health/"]


def test_database_that_is_away_is_one_line_with_the_error(client, db, monkeypatch, lines):
    def fail(**_):
        raise OperationalError("connection refused\nIs the server running?")

    monkeypatch.setattr(views, "home_page", fail)
    client.raise_request_exception = False
    client.force_login(User.objects.create_superuser("root", password="x"))
    assert client.get("/").status_code == 503
    assert lines == ["Service Unavailable: / (OperationalError: connection refused)"]


def test_error_of_the_portal_keeps_its_traceback(client, db, monkeypatch, lines):
    def fail(**_):
        raise ValueError("a bug")

    monkeypatch.setattr(views, "home_page", fail)
    client.raise_request_exception = False
    client.force_login(User.objects.create_superuser("root", password="x"))
    assert client.get("/").status_code == 500
    (text,) = lines
    assert text.startswith("Internal Server Error: /\nTraceback")


def test_console_uses_the_filters():
    assert settings.LOGGING["handlers"]["console"]["filters"] == ["outage", "refusal", "request_id"]


def test_times_have_their_zone():
    text = formatter("text").format(record("words"))
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[+-]\d{4} ERROR x: words", text)


def test_line_has_the_id_of_its_request():
    line = record("words")
    line.request_id = ID
    assert f" [{ID}] ERROR x: words" in formatter("text").format(line)


def test_line_of_json_has_its_parts_and_no_secret_url():
    try:
        raise ValueError("cannot write /feeds/secret/inbox.atom")
    except ValueError as error:
        line = record('"/feeds/secret/a"', error)
    line.request_id = ID
    line.request = object()  # as Django adds it
    line.status_code = 500
    parts = json.loads(formatter("json").format(line))
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[+-]\d{4}", parts.pop("time"))
    assert "/feeds/[secret]/inbox.atom" in parts.pop("traceback")
    assert parts == {
        "level": "ERROR",
        "logger": "x",
        "message": '"/feeds/[secret]/a"',
        "request_id": ID,
        "status_code": 500,
    }


def test_line_of_json_without_a_request():
    assert json.loads(formatter("json").format(record("words")))["request_id"] is None


@pytest.mark.parametrize("sent", [ID, None, "rm -rf", "WARNING opsportal.login: Login failed"])
def test_request_has_an_id_in_log_response_and_page(client, db, monkeypatch, caplog, sent):
    def fail(**_):
        raise ValueError("a bug")

    monkeypatch.setattr(views, "home_page", fail)
    client.raise_request_exception = False
    client.force_login(User.objects.create_superuser("root", password="x"))
    headers = {"X-Request-ID": sent} if sent else {}
    caplog.handler.addFilter(CorrelationId(correlation_id_field="request_id"))
    response = client.get("/", headers=headers)
    request_id = response.headers["X-Request-ID"]
    assert re.fullmatch("[0-9a-f]{32}", request_id)
    assert (request_id == ID) == (sent == ID)
    assert request_id in response.content.decode()
    assert caplog.records[-1].request_id == request_id


@pytest.fixture
def another_application():
    """A Celery application beside the portal's.

    A worker in this process makes it the current one: afterwards, that is the portal's again.
    """
    yield Celery("ids", set_as_current=False, broker="memory://", backend="cache+memory://")
    portal = celery_app()
    portal.set_current()
    portal.set_default()
    assert current_app.main == "opsportal"


def test_task_has_the_id_of_the_request_that_sent_it(another_application):
    ids = []

    @another_application.task(shared=False)
    def note() -> None:
        ids.append(get_guid())

    with start_worker(another_application, perform_ping_check=False, pool="solo"):
        set_guid(ID)
        note.delay().get(timeout=30)
        clear_guid()
        note.delay().get(timeout=30)
    assert ids[0] == ID
    assert ids[1] not in {ID, None}
