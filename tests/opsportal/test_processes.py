"""Real workers and beat: what the health page knows of them, and what they log while Redis is away."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from django.db import connection
from django.utils import timezone

from apps.core.domain.health import HEARTBEAT_LIMIT, beat_heart, components
from apps.core.models import Heartbeat
from opsportal.celery import app

ROOT = Path(__file__).parents[2]
WORKER = (
    "worker",
    "--hostname=default@w1",
    "--pool=solo",
    "--queues=of-this-test",
    "--without-gossip",
    "--without-mingle",
)
SECONDS = 90  # far more than a start takes on a busy machine


@contextmanager
def running(log: Path, *command: str, **variables: str) -> Iterator["subprocess.Popen[bytes]"]:
    """Run a process of Celery on the test's own database."""
    url = urlsplit(os.environ["DATABASE_URL"])._replace(path=f"/{connection.settings_dict['NAME']}").geturl()
    environment = os.environ | {"DATABASE_URL": url, "VAR_DIR": str(log.parent), "LOG_LEVEL": "INFO"} | variables
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "celery", "--quiet", "-A", "opsportal", *command, "--loglevel=INFO"],
            cwd=ROOT,
            env=environment,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def wait_for(condition) -> None:
    ends = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < ends, "it did not happen"
        time.sleep(0.1)


@pytest.mark.django_db(transaction=True)
def test_worker_that_is_stopped_is_forgotten_and_one_that_is_killed_is_shown_as_dead(tmp_path):
    heart = Heartbeat.objects.filter(name="worker default@w1")
    for end in (signal.SIGTERM, signal.SIGKILL):
        with running(tmp_path / "log", *WORKER) as worker:
            wait_for(heart.exists)
            worker.send_signal(end)
            worker.wait(SECONDS)
        assert heart.exists() is (end == signal.SIGKILL)
    later = timezone.now() + HEARTBEAT_LIMIT + timedelta(seconds=1)
    beat_heart(name="beat", at=later)
    failing = {check.name: check.detail for check in components(later) if not check.ok}
    assert failing.keys() == {"worker default@w1", "workers", "queue"}
    assert failing["worker default@w1"].startswith("dead")


@pytest.mark.django_db(transaction=True)
def test_beat_has_a_heartbeat_and_one_line_of_log_while_redis_is_away(tmp_path):
    log = tmp_path / "log"
    beat = ("beat", "--pidfile=", f"--schedule={tmp_path / 'schedule'}")
    with running(log, *beat, REDIS_URL="redis://127.0.0.1:1/0"):
        wait_for(Heartbeat.objects.filter(name="beat").exists)
        wait_for(lambda: "is away" in log.read_text())
        time.sleep(7)  # tasks of every 5 seconds fall due
    lines = log.read_text().splitlines()
    assert len(lines) == 1
    assert re.match(
        r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[+-]\d{4} ERROR celery\.beat: The queue \(Redis\) is away;", lines[0]
    )


@pytest.mark.django_db(transaction=True)
def test_worker_logs_one_line_while_redis_is_away(tmp_path):
    log = tmp_path / "log"
    with running(log, *WORKER, REDIS_URL="redis://127.0.0.1:1/0"):
        wait_for(lambda: "is away" in log.read_text())
        time.sleep(8)  # it tries again after 2 and 4 seconds
    assert len([line for line in log.read_text().splitlines() if re.match(r"\d{4}-", line)]) == 1


def test_every_periodic_task_is_one_that_workers_know(settings):
    app.autodiscover_tasks(force=True)
    wanted = {entry["task"] for entry in settings.CELERY_BEAT_SCHEDULE.values()}
    assert wanted
    assert wanted <= set(app.tasks)
