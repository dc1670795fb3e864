"""All processes are killed at random, and their servers: every sink has every job, once, its bytes as they were."""

import os
import random
import signal
import subprocess
import sys
import time
from contextlib import ExitStack, contextmanager, suppress

import psycopg
import pytest

from dev.postgres import Postgres
from dev.processes import guard, spawn
from dev.valkey import Valkey

from .conftest import AWAY_SECONDS, KILLS, ROOT, wait_for
from .spool_writer import environment_bytes, script_of
from .test_capture_faults import assert_kept, writing
from .workers import archive_worker, beat

# Has imported everything once, and starts a capture for each line that it reads.
STARTER = """
import os, sys, django
django.setup()
from django.core.management import call_command, load_command_class
load_command_class("apps.archive", "capture")
for _ in sys.stdin:
    pid = os.fork()
    if not pid:
        sys.stdin.close()
        print("pid", os.getpid(), flush=True)
        call_command(*sys.argv[1:])
    os.waitpid(pid, 0)
"""


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
        server = spawn("postgres", postgres.command(), run, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        postgres.wait_ready(server.poll)
        postgres.create_database("opsportal")
        return server

    try:
        yield start, postgres.url("opsportal")
    finally:
        watchdog.stdin.close()
        watchdog.wait(timeout=60)


@contextmanager
def starter(portal, *arguments):
    """Yield what starts a capture, as `manage.py` does but sooner, and returns its process once it captures."""
    process = subprocess.Popen(
        [sys.executable, "-c", STARTER, *map(str, arguments)],
        env=portal.environment,
        cwd=ROOT,
        text=True,
        bufsize=1,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )

    def start():
        process.stdin.write("\n")
        pid = int(process.stdout.readline().removeprefix("pid "))
        assert process.stdout.readline() == "capturing the jobs of alps\n"
        return pid

    with process:
        yield start
        process.stdin.close()


def counted(kinds):
    """Return KILLS functions, of each kind its share in hundredths."""
    return [kill for kill, share in kinds.items() for _ in range(max(1, KILLS * share // 100))]


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_kills_of_every_process_lose_and_double_nothing(portal, spool, tmp_path_factory):
    base, moments = tmp_path_factory.mktemp("k"), random.Random(17)
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
        start = stack.enter_context(starter(own, *own.capture(spool)))
        captures = [start()]

        def kill_capture():
            os.kill(captures.pop(), signal.SIGKILL)
            captures.append(start())

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

        kinds = {kill_capture: 40, kill_one_of_the_pool: 30, kill_worker: 6, kill_beat: 4}
        kills = counted(kinds | {servers.kill_valkey: 12, servers.kill_postgres: 8})
        moments.shuffle(kills)
        with writing(spool, 0.02) as written:
            for kill in kills:
                time.sleep(moments.uniform(0, 0.6))
                kill()
        os.kill(captures.pop(), signal.SIGKILL)
        own.run(*own.capture(spool, "--once"))
        with psycopg.connect(servers.url, autocommit=True) as connection:

            def rows(table):
                return connection.execute(f"SELECT count(*) FROM archive_{table}").fetchone()[0]

            wait_for(lambda: rows("intakebatch") == 0)
            assert [rows("sinkdelivery"), rows("refusedjob")] == [0, 0]
        assert_kept(written, own)
    assert {path.name: path.read_bytes() for path in files.glob("alps/2*/*")} == {
        f"job.{job_id}_{kind}": content
        for job_id in written
        for kind, content in (("script", script_of(job_id)), ("environment", environment_bytes()))
    }


@pytest.mark.slow
def test_database_killed_under_load_and_away_for_a_while(portal, spool, tmp_path_factory):
    base = tmp_path_factory.mktemp("pg")
    with own_postgres(base) as (start, url):
        server = start()
        own = type(portal)(portal.environment | {"DATABASE_URL": url})
        own.run("migrate", "-v0", "--skip-checks")
        with writing(spool, 0.02) as written, own.capturing(spool) as capture:
            time.sleep(2)
            server.kill()
            server.wait()
            time.sleep(AWAY_SECONDS)
            start()
            time.sleep(1)
            assert capture.poll() is None

        own.run(*own.capture(spool, "--once"))
        own.run("shell", "-c", "from tests.factories.archive import archive_all; archive_all()")  # as its workers do

        assert_kept(written, own)
