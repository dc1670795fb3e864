"""All processes are killed at random, and their servers: every sink has every job, once,
its bytes as they were.
"""

import os
import random
import signal
import subprocess
import time
from contextlib import ExitStack, contextmanager, suppress

import dj_database_url
import pytest
from django.core.management import call_command
from django.db import connection

from apps.archive.domain.store import contents, jobs
from apps.archive.models import IntakeBatch, RefusedJob, SinkDelivery
from dev.postgres import Postgres
from dev.processes import free_port, guard, spawn
from dev.valkey import Valkey
from tests.archive.conftest import AWAY_SECONDS, KILLS, Portal, wait_for
from tests.archive.spool_writer import environment_bytes, script_of
from tests.archive.workers import archive_worker, beat, web
from tests.capture.test_capture_faults import assert_kept, writing


class Servers:
    """A PostgreSQL and a Valkey of their own, each of which may be killed."""

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
        self.valkey_server = spawn(
            "valkey", self.valkey.command(), self.run, stdout=null, stderr=null
        )
        self.valkey.wait_ready()

    def kill_valkey(self):
        """What it held is gone: it keeps nothing on disk."""
        self.valkey_server.kill()
        self.valkey_server.wait()
        self.start_valkey()

    def kill_postgres(self, away_seconds=0):
        self.postgres_server.kill()
        self.postgres_server.wait()
        time.sleep(away_seconds)
        self.postgres_server = self.start_postgres()


@contextmanager
def own_postgres(base):
    """Yield what starts a PostgreSQL, also again after a kill, and its URL."""
    run, sockets = base / "run", base / "s"
    run.mkdir()
    sockets.mkdir()
    watchdog = guard(run)
    postgres = Postgres(base / "data", sockets)
    postgres.prepare()

    def start():
        postgres.clear_stale()
        server = spawn(
            "postgres",
            postgres.command(),
            run,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        postgres.wait_ready(server.poll)
        postgres.create_database("opsportal")
        return server

    try:
        yield start, postgres.url("opsportal")
    finally:
        watchdog.stdin.close()
        watchdog.wait(timeout=60)


@contextmanager
def on_database(url):
    """Let this process use another database until the end of the block,
    and no dictionary that it keeps of its own.
    """
    own = dict(connection.settings_dict)
    connection.close()
    connection.settings_dict.update(dj_database_url.parse(url))
    forget_dictionaries()
    try:
        yield
    finally:
        connection.close()
        connection.settings_dict.update(own)
        forget_dictionaries()


def forget_dictionaries():
    """Dictionaries of two databases have the same numbers."""
    contents._dictionary.cache_clear()
    jobs._compressor.cache_clear()


def counted(kinds):
    """Return KILLS functions, of each kind its share in hundredths."""
    return [kill for kill, share in kinds.items() for _ in range(max(1, KILLS * share // 100))]


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_kills_of_every_process_and_a_database_away_lose_and_double_nothing(
    portal, spool, tmp_path_factory
):
    base, moments = tmp_path_factory.mktemp("k"), random.Random(17)
    with ExitStack() as stack:
        servers = Servers(stack, base)
        stack.enter_context(on_database(servers.url))
        call_command("migrate", verbosity=0, skip_checks=True)
        files = base / "files"
        environment = portal.environment | {
            "DATABASE_URL": servers.url,
            "REDIS_URL": servers.valkey.url(),
            "PORTAL_URL": f"http://127.0.0.1:{free_port()}",
            "ARCHIVE_SINKS": f"store: files://{files}",
        }
        own = Portal(environment)
        worker = stack.enter_context(archive_worker(environment, base))
        ticking = stack.enter_context(beat(environment, base))
        serving = stack.enter_context(web(environment, base))
        captures = [stack.enter_context(own.capturing(spool))]

        def end_capture():
            capture = captures.pop()
            capture.kill()
            capture.wait()

        def kill_capture():
            end_capture()
            captures.append(stack.enter_context(own.capturing(spool)))

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

        def kill_web():
            serving.kill()
            serving.start()

        kinds = {kill_capture: 36, kill_one_of_the_pool: 28, kill_worker: 6, kill_beat: 4}
        kinds[kill_web] = 6
        kills = counted(kinds | {servers.kill_valkey: 12, servers.kill_postgres: 8})
        moments.shuffle(kills)
        with writing(spool, 0.02) as written:
            for kill in kills:
                time.sleep(moments.uniform(0, 0.6))
                kill()
            servers.kill_postgres(away_seconds=AWAY_SECONDS)
            time.sleep(1)
            assert captures[-1].poll() is None
        end_capture()
        own.capture_to_intake(spool)
        connection.close()  # to the database that was killed
        wait_for(lambda: not IntakeBatch.objects.exists(), seconds=120)
        assert not SinkDelivery.objects.exists()
        assert not RefusedJob.objects.exists()
        assert_kept(written, own)
    assert {path.name: path.read_bytes() for path in files.glob("alps/2*/*")} == {
        f"job.{job_id}_{kind}": content
        for job_id in written
        for kind, content in (("script", script_of(job_id)), ("environment", environment_bytes()))
    }
