"""Beat and workers beat by themselves, and are forgotten when they stop in good order."""

import platform
import time
from datetime import timedelta
from types import SimpleNamespace

import pytest
from django.db import DatabaseError, connection
from django.utils import timezone

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
    heartbeats.stop_hearts()
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
    heart = heartbeats.Heart(lambda: "beat", ())
    heart.start()
    wait_for(lambda: len(tries) > 3)
    heart.stop()


@pytest.mark.django_db(transaction=True)
def test_beat_that_gets_its_turn_is_no_longer_listed_as_waiting(monkeypatch):
    """Also if a waiting one was killed, and this one has its turn from the start."""
    monkeypatch.setattr(heartbeats, "SECONDS", 0.05)
    waiting = health.WAITING_BEAT + platform.node()
    health.beat_heart(name=waiting, at=timezone.now() - timedelta(days=1))
    turn = SimpleNamespace(take=lambda: False, is_ours=False)
    heartbeats.on_beat_init(sender=SimpleNamespace(scheduler=SimpleNamespace(turn=turn)))
    now = timezone.now() - timedelta(seconds=10)
    wait_for(Heartbeat.objects.filter(name=waiting, at__gt=now).exists)
    assert not Heartbeat.objects.filter(name=health.BEAT).exists()
    turn.is_ours = True
    wait_for(Heartbeat.objects.filter(name=health.BEAT).exists)
    assert not Heartbeat.objects.filter(name=waiting).exists()
    assert health.check_components(timezone.now())[2].detail.startswith(f"on {platform.node()}: ")
    heartbeats.stop_hearts()
    assert Heartbeat.objects.filter(name=health.BEAT).exists(), "another one may have it now"
    connection.close()
