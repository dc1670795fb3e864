"""Real workers that archive, and what may happen to them: every sink has every job, once, its bytes as they were."""

import os
import random
import signal
import subprocess
import threading
import time
from contextlib import ExitStack, contextmanager, suppress
from uuid import UUID

import psycopg
import pytest
import redis
from django.conf import settings as django_settings

from apps.archive.capture.portals.broker import Broker
from apps.archive.domain.intake import QUEUE
from apps.archive.models import ArchivedJob, IntakeBatch, RefusedJob, SinkDelivery, SinkState
from apps.archive.wire.batches import pack
from apps.archive.wire.intake import insert_batch
from dev.processes import guard, spawn
from dev.valkey import Valkey
from tests.factories.archive import captured_job

from .conftest import wait_for
from .spool_writer import environment_bytes, script_of
from .test_capture_faults import own_postgres
from .test_delivery import accept_each
from .workers import archive_worker, beat

KILLS = 100
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
        wait_for(lambda: ArchivedJob.objects.count() == 30 and SinkState.objects.filter(written=30).count() == 2)
        assert not there.exists(), "only a worker of that host writes there"
        with archive_worker(environment, tmp_path, queue="archive.files@disk-3", concurrency=1):
            wait_for(nothing_is_left)
    assert files_of(here) == files_of(there) == expected_files(range(1, 31))


def test_job_that_kills_its_workers_is_refused_and_costs_no_other(portal, broker, tmp_path):
    (tmp_path / "poison.py").write_text(POISON)
    info = tmp_path / "poison-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: poison\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[opsportal.archive_sinks]\npoison = poison:PoisonSink\n")
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


class Servers:
    """A PostgreSQL and a Valkey of their own, a worker and beat, each of which may be killed."""

    def __init__(self, stack, base):
        self.start_postgres, self.url = stack.enter_context(own_postgres(base))
        self.run = base / "valkey-run"
        for directory in (self.run, base / "valkey"):
            directory.mkdir()
        stack.callback(self._stop, guard(self.run))
        self.valkey = Valkey(base / "valkey", base / "s", fast=True)
        self.postgres_server = self.start_postgres()
        self.start_valkey()

    def _stop(self, watchdog):
        watchdog.stdin.close()
        watchdog.wait(timeout=60)

    def start_valkey(self):
        null = subprocess.DEVNULL
        self.valkey_server = spawn("valkey", self.valkey.command(), self.run, stdout=null, stderr=null)
        self.valkey.wait_ready()

    def kill_valkey(self):
        """What it held is gone: it keeps nothing on disk."""
        self.valkey_server.kill()
        self.valkey_server.wait()
        self.start_valkey()

    def kill_postgres(self):
        self.postgres_server.kill()
        self.postgres_server.wait()
        self.postgres_server = self.start_postgres()


@contextmanager
def handing_over(url, broker, pause):
    """Hand batches of jobs over as capture does, again until it is answered, and yield the ids of the jobs."""
    enough, job_ids = threading.Event(), []

    def hand_over():
        sequence = 0
        while not enough.wait(pause):
            jobs = [captured_job(sequence + n) for n in range(1, 1 + random.Random(sequence).randint(1, 20))]
            sequence += len(jobs)
            while True:
                with suppress(psycopg.Error), psycopg.connect(url) as connection, connection.cursor() as cursor:
                    insert_batch(
                        cursor,
                        cluster="alps",
                        host="here",
                        journal=UUID(int=3),
                        sequence=sequence,
                        jobs=len(jobs),
                        size_bytes=sum(job.size_bytes for job in jobs),
                        captured_at=jobs[0].captured_at,
                        data=pack(jobs),
                        most_bytes=2**32,
                    )
                    break
                time.sleep(0.1)
            job_ids.extend(int(job.job_id) for job in jobs)
            broker.wake()

    thread = threading.Thread(target=hand_over)
    thread.start()
    try:
        yield job_ids
    finally:
        enough.set()
        thread.join(60)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_hundred_kills_of_workers_beat_broker_and_database_lose_and_double_nothing(portal, tmp_path_factory):
    base, moments = tmp_path_factory.mktemp("w"), random.Random(17)
    with ExitStack() as stack:
        servers = Servers(stack, base)
        files = base / "files"
        environment = portal.environment | {
            "DATABASE_URL": servers.url,
            "REDIS_URL": servers.valkey.url(),
            "ARCHIVE_SINKS": f"store: files://{files}",
        }
        own = type(portal)(environment)
        own.run("migrate", "-v0", "--skip-checks")
        worker = stack.enter_context(archive_worker(environment, base))
        ticking = stack.enter_context(beat(environment, base))

        def kill_one_of_the_pool():
            if children := worker.children():
                with suppress(ProcessLookupError):
                    os.kill(moments.choice(children), signal.SIGKILL)

        def kill_worker():
            worker.kill()
            worker.start()

        def kill_beat():
            ticking.kill()
            ticking.start()

        kills = [kill_one_of_the_pool] * 80 + [kill_worker] * 8 + [kill_beat] * 2
        kills += [servers.kill_valkey] * 5 + [servers.kill_postgres] * 5
        assert len(kills) == KILLS
        moments.shuffle(kills)
        with handing_over(servers.url, Broker(servers.valkey.url()), 0.05) as job_ids:
            time.sleep(10)
            for kill in kills:
                time.sleep(moments.uniform(0, 0.8))
                kill()
            kill_worker()  # Celery may not hear a broker again that was killed under it
            kill_beat()
        with psycopg.connect(servers.url, autocommit=True) as connection:

            def rows(table):
                return connection.execute(f"SELECT count(*) FROM archive_{table}").fetchone()[0]

            wait_for(lambda: rows("intakebatch") == 0, seconds=120)
            assert [rows("sinkdelivery"), rows("refusedjob")] == [0, 0]
        listed = own.listed()
        own.run("archive", "verify")
    assert len(job_ids) > 1000
    assert sorted(int(job["job_id"]) for job in listed) == job_ids
    assert files_of(files) == expected_files(job_ids)
