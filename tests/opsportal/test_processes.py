"""Real workers and beat: what the health page knows of them,
and what they log while Redis is away.
"""

import os
import re
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

from apps.core.domain.health import HEARTBEAT_LIMIT, beat_heart, check_components
from apps.core.models import Heartbeat

ROOT = Path(__file__).parents[2]
WORKER = ("worker", "--pool=solo", "--queues=of-this-test", "--without-gossip", "--without-mingle")
SECONDS = 90  # far more than a start takes on a busy machine


@contextmanager
def running(log: Path, *command: str, **variables: str) -> Iterator["subprocess.Popen[bytes]"]:
    """Run a process of Celery on the test's own database."""
    url = (
        urlsplit(os.environ["DATABASE_URL"])
        ._replace(path=f"/{connection.settings_dict['NAME']}")
        .geturl()
    )
    environment = (
        os.environ
        | {"DATABASE_URL": url, "VAR_DIR": str(log.parent), "LOG_LEVEL": "INFO"}
        | variables
    )
    with log.open("wb") as output:
        process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "celery",
                "--quiet",
                "-A",
                "opsportal",
                *command,
                "--loglevel=INFO",
            ],
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
    stopped, killed = (
        Heartbeat.objects.filter(name=f"worker default@{name}") for name in ("stopped", "killed")
    )
    with (
        running(tmp_path / "stopped", *WORKER, "--hostname=default@stopped") as worker_to_stop,
        running(tmp_path / "killed", *WORKER, "--hostname=default@killed") as worker_to_kill,
    ):
        wait_for(lambda: stopped.exists() and killed.exists())
        worker_to_stop.terminate()
        worker_to_kill.kill()
        worker_to_stop.wait(SECONDS)
        worker_to_kill.wait(SECONDS)
    assert not stopped.exists()
    later = timezone.now() + HEARTBEAT_LIMIT + timedelta(seconds=1)
    beat_heart(name="beat", at=later)
    failing = {check.name: check.detail for check in check_components(later) if not check.ok}
    assert failing.keys() == {"worker default@killed", "workers", "queue"}
    assert failing["worker default@killed"].startswith("dead")


@pytest.mark.django_db(transaction=True)
def test_beat_has_a_heartbeat_and_logs_one_line_as_a_worker_does_while_redis_is_away(tmp_path):
    beat_log, worker_log = tmp_path / "beat", tmp_path / "worker"
    beat = ("beat", "--pidfile=", f"--schedule={tmp_path / 'schedule'}")
    away = {"REDIS_URL": "redis://127.0.0.1:1/0"}
    with (
        running(beat_log, *beat, **away),
        running(worker_log, *WORKER, "--hostname=default@w1", **away),
    ):
        wait_for(Heartbeat.objects.filter(name="beat").exists)
        wait_for(
            lambda: (
                "is unavailable" in beat_log.read_text()
                and "is unavailable" in worker_log.read_text()
            )
        )
        # Tasks of every 5 seconds fall due, and the worker tries again after 2 and 4 seconds.
        time.sleep(8)
    lines = beat_log.read_text().splitlines()
    assert len(lines) == 1
    assert re.match(
        r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[+-]\d{4} ERROR celery\.beat: "
        r"The queue \(Redis\) is unavailable;",
        lines[0],
    )
    assert (
        len([line for line in worker_log.read_text().splitlines() if re.match(r"\d{4}-", line)])
        == 1
    )
