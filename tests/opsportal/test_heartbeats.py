"""Beat and workers beat by themselves, and are forgotten when they stop in good order."""

import time

import pytest
from django.db import DatabaseError, connection

from apps.core.domain import health
from apps.core.models import Heartbeat
from opsportal import heartbeats


def wait_for(condition) -> None:
    for _ in range(200):
        if condition():
            return
        time.sleep(0.05)
    raise AssertionError("it did not happen")


@pytest.mark.django_db(transaction=True)
def test_worker_beats_until_it_stops(monkeypatch):
    monkeypatch.setattr(heartbeats, "SECONDS", 0.05)
    heartbeats.on_worker_ready(sender=type("Consumer", (), {"hostname": "celery@w1"}))
    rows = Heartbeat.objects.filter(name="worker celery@w1")
    wait_for(rows.exists)
    first = rows.get().at
    wait_for(lambda: rows.get().at > first)
    heartbeats.on_worker_shutdown()
    assert not rows.exists()
    connection.close()


def test_database_that_is_away_stops_no_heart(monkeypatch):
    tries = []

    def fail(**_: object) -> None:
        tries.append(1)
        raise DatabaseError("gone")

    monkeypatch.setattr(heartbeats, "SECONDS", 0.01)
    monkeypatch.setattr(health, "beat_heart", fail)
    monkeypatch.setattr(health, "forget_heart", fail)
    heart = heartbeats.Heart("beat")
    heart.start()
    wait_for(lambda: len(tries) > 3)
    heart.stop()
