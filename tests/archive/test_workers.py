"""Real workers that archive, and what may happen to them: every sink has every job, once,
its bytes as they were.
"""

import time

import pytest
import redis
from django.conf import settings as django_settings

from apps.archive.domain.intake import QUEUE
from apps.archive.models import ArchivedJob, IntakeBatch, RefusedJob, SinkDelivery, SinkState
from tests.archive.conftest import wait_for
from tests.archive.sinks.test_delivery import accept_each
from tests.archive.spool_writer import environment_bytes, script_of
from tests.archive.workers import archive_worker, beat

POISON = """
import os, signal
from pathlib import Path
class PoisonSink:
    name = "poison:"
    @classmethod
    def from_url(cls, url):
        return cls()
    def write(self, jobs):
        for job in jobs:
            if job.job_id == "5":
                os.kill(os.getpid(), signal.SIGKILL)
            with open(os.environ["KEPT"], "a") as kept:
                kept.write(job.job_id + "\\n")
        return {}
    def close(self):
        pass
"""


@pytest.fixture
def broker():
    """The broker of the tests, without messages of this part before and after."""
    client = redis.Redis.from_url(django_settings.REDIS_URL)
    client.delete(QUEUE)
    yield client
    client.flushdb()


def nothing_is_left():
    return not (IntakeBatch.objects.exists() or SinkDelivery.objects.exists())


def files_of(directory):
    return {path.name: path.read_bytes() for path in directory.glob("alps/2*/*")}


def expected_files(job_ids):
    scripts = {f"job.{n}_script": script_of(n) for n in job_ids}
    return scripts | {f"job.{n}_environment": environment_bytes() for n in job_ids}


def test_batches_reach_store_and_files_and_a_host_of_its_own(portal, broker, tmp_path, settings):
    here, there = tmp_path / "here", tmp_path / "there"
    sinks = f"store: files://{here} files://disk-3{there}"
    settings.ARCHIVE_SINKS = sinks.split()
    environment = portal.environment | {"ARCHIVE_SINKS": sinks}
    accept_each(range(1, 20), range(20, 31))
    with archive_worker(environment, tmp_path):
        wait_for(
            lambda: (
                ArchivedJob.objects.count() == 30
                and SinkState.objects.filter(written=30).count() == 2
            )
        )
        assert not there.exists(), "only a worker of that host writes there"
        with archive_worker(environment, tmp_path, queue="archive.files@disk-3", concurrency=1):
            wait_for(nothing_is_left)
    assert files_of(here) == files_of(there) == expected_files(range(1, 31))


def test_job_that_kills_its_workers_is_refused_and_costs_no_other(portal, broker, tmp_path):
    (tmp_path / "poison.py").write_text(POISON)
    info = tmp_path / "poison-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: poison\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[opsportal.archive_sinks]\npoison = poison:PoisonSink\n"
    )
    kept = tmp_path / "kept"
    environment = portal.environment | {
        "ARCHIVE_SINKS": "poison: store:",
        "PYTHONPATH": str(tmp_path),
        "KEPT": str(kept),
    }
    accept_each([1, 2], [3, 4, 5, 6], [7])
    with archive_worker(environment, tmp_path), beat(environment, tmp_path):
        wait_for(lambda: ArchivedJob.objects.count() == 7)
        wait_for(nothing_is_left, seconds=120)
    refused = RefusedJob.objects.get()
    assert (refused.sink.name, refused.job_id) == ("poison:", "5")
    assert {int(line) for line in kept.read_text().split()} == {1, 2, 3, 4, 6, 7}


def test_lost_messages_are_made_up_for(portal, broker, tmp_path):
    """Redis is flushed while batches come: beat sends again."""
    with archive_worker(portal.environment, tmp_path), beat(portal.environment, tmp_path):
        for number in range(1, 40):
            accept_each([number], first=number)
            broker.flushdb()
            time.sleep(0.05)
        wait_for(nothing_is_left)
    assert ArchivedJob.objects.count() == 39
