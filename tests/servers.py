"""The suite's own PostgreSQL and Valkey, started once a session where the environment names none.

A plugin (`-p tests.servers`), so that the addresses stand in the environment before the settings are read. The workers of
pytest-xdist inherit them; each has its own PostgreSQL database (by pytest-django) and its own numbered Valkey database.
"""

import atexit
import os
import re
import subprocess
import tempfile
from collections.abc import Generator
from pathlib import Path

import pytest

from dev.messages import Failure
from dev.postgres import Postgres
from dev.processes import guard, spawn
from dev.valkey import Valkey

OURS = "OPSPORTAL_TEST_SERVERS"
WORKER_DATABASES = 15  # Valkey has 16: number 0 is for a run without workers


@pytest.hookimpl(wrapper=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> Generator[None]:
    if not early_config.known_args_namespace.help and not early_config.known_args_namespace.version:
        _provide()
    return (yield)


def _provide() -> None:
    """Set DATABASE_URL and REDIS_URL, from servers of our own where they are not given, and what else is required."""
    if "SECRET_KEY_FILE" not in os.environ:
        os.environ.setdefault("SECRET_KEY", "a key for the tests, which guards nothing and is long enough")
    worker = re.fullmatch(r"gw(\d+)", os.environ.get("PYTEST_XDIST_WORKER", ""))
    if os.environ.get(OURS):
        if worker:
            number = 1 + int(worker[1]) % WORKER_DATABASES
            os.environ["REDIS_URL"] = re.sub(r"db=\d+$", f"db={number}", os.environ["REDIS_URL"])
    elif not (
        {"DATABASE_URL", "DATABASE_URL_FILE"} & os.environ.keys()
        and {"REDIS_URL", "REDIS_URL_FILE"} & os.environ.keys()
    ):
        try:
            _start()
        except Failure as failure:
            pytest.exit(f"the test servers did not start: {failure}", returncode=3)


def _start() -> None:
    """Start both servers in a temporary directory that goes with this process."""
    base = Path(tempfile.mkdtemp(prefix="opsportal-test-"))
    run, sockets, log = base / "run", base / "s", base / "servers.log"
    for directory in (run, sockets, base / "valkey"):
        directory.mkdir()
    watchdog = guard(run, remove=base)
    atexit.register(_stop, watchdog)
    postgres = Postgres(base / "postgres", sockets, fast=True)
    valkey = Valkey(base / "valkey", sockets, fast=True)
    postgres.prepare()
    with log.open("ab") as output:
        options = {"stdout": output, "stderr": subprocess.STDOUT}
        server = spawn("postgres", postgres.command(), run, **options)
        spawn("valkey", valkey.command(), run, **options)
    postgres.wait_ready(server.pid)
    valkey.wait_ready()
    postgres.create_database("opsportal")
    os.environ |= {OURS: str(base)}
    if "DATABASE_URL_FILE" not in os.environ:
        os.environ.setdefault("DATABASE_URL", postgres.url("opsportal"))
    if "REDIS_URL_FILE" not in os.environ:
        os.environ.setdefault("REDIS_URL", valkey.url())


def _stop(watchdog: "subprocess.Popen[bytes]") -> None:
    """Let the watchdog stop the servers, as it would had this process been killed, and wait for it."""
    if watchdog.stdin:
        watchdog.stdin.close()
    watchdog.wait(timeout=20)
