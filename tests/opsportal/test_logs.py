"""What the log holds of an outage of Redis, and how it writes times."""

import logging
import re

import kombu.exceptions
import pytest
import redis.exceptions
from django.conf import settings
from django.db import OperationalError

from apps.accounts.models import User
from apps.portal.web import views
from opsportal import logs

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
    assert settings.LOGGING["handlers"]["console"]["filters"] == ["outage", "refusal"]


def test_times_have_their_zone():
    line = settings.LOGGING["formatters"]["line"]
    text = logging.Formatter(line["fmt"], line["datefmt"]).format(record("words"))
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[+-]\d{4} ERROR x: words", text)
