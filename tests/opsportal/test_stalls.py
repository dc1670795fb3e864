"""A worker that takes no messages although some wait ends, and is started again."""

import os

import pytest
from celery import Celery
from django.db import connection

from apps.core.domain import health
from apps.core.models import Heartbeat
from opsportal.servers import broker_url
from opsportal.stalls import BUSY_SECONDS, IDLE_SECONDS, StallWatch
from tests.archive.workers import PortalProcess
from tests.failover.waiting import wait_for
from tests.upgrade.databases import url_of


@pytest.mark.parametrize(
    ("waiting", "taken", "is_busy", "after", "stalled"),
    [
        (1, 0, False, IDLE_SECONDS - 1, False),
        (1, 0, False, IDLE_SECONDS, True),
        (0, 0, False, IDLE_SECONDS, False),
        (1, 1, False, IDLE_SECONDS, False),
        (1, 0, True, IDLE_SECONDS, False),
        (1, 0, True, BUSY_SECONDS, True),
    ],
)
def test_stall(waiting, taken, is_busy, after, stalled):
    watch = StallWatch(0.0)
    assert look(watch, 1, after, waiting=waiting, taken=taken, is_busy=is_busy) is stalled


def test_stall_begins_with_the_last_message():
    watch = StallWatch(0.0)
    assert not look(watch, 1, 30, waiting=5, taken=2)
    assert not look(watch, 31, 30 + IDLE_SECONDS, waiting=5, taken=3)
    assert look(watch, 31 + IDLE_SECONDS, 31 + IDLE_SECONDS, waiting=5, taken=3)


def test_worker_that_was_stopped_has_not_stalled():
    watch = StallWatch(0.0)
    assert not look(watch, 1, 10, waiting=5, taken=3)
    later = 10 + 10 * IDLE_SECONDS
    assert not look(watch, later, later + IDLE_SECONDS - 1, waiting=5, taken=3)
    assert look(watch, later + IDLE_SECONDS, later + IDLE_SECONDS, waiting=5, taken=3)


def look(watch, first, last, *, waiting, taken, is_busy=False) -> bool:
    """Look each second from the first to the last; return whether the worker stalled at last."""
    stalls = []
    for second in range(int(first), int(last) + 1):
        stalls.append(
            watch.is_stalled(waiting=waiting, taken=taken, is_busy=is_busy, now=float(second))
        )
    assert not any(stalls[:-1])
    return stalls[-1]


@pytest.mark.slow
def test_worker_that_stopped_taking_messages_is_started_again(transactional_db, tmp_path):
    redis_url = os.environ["REDIS_URL"].partition("?")[0] + "?db=13"
    environment = os.environ | {
        "DATABASE_URL": url_of(connection.settings_dict["NAME"]),
        "REDIS_URL": redis_url,
        "VAR_DIR": str(tmp_path / "var"),
    }
    # The application of the portal stays the current one, for the tasks of other tests.
    sender = Celery("sender", set_as_current=False, broker=broker_url(redis_url))
    heart = Heartbeat.objects.filter(name=health.QUEUE)
    log = tmp_path / "worker.log"
    command = ("-A", "opsportal", "worker", "--queues=default", "--concurrency=1")
    worker = PortalProcess(environment, log, "tests.opsportal.impatient_worker", *command)
    try:
        sender.send_task("core.beat_heart", queue="default")
        wait_for(heart.exists)
        sender.control.cancel_consumer("default", reply=True, timeout=10)
        heart.delete()
        sender.send_task("core.beat_heart", queue="default")
        wait_for(heart.exists)
        assert log.read_text().count("this worker takes none: it ends") == 1
    finally:
        worker.kill()
        sender.close()
