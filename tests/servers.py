"""The PostgreSQL and Valkey of the tests, once a session where the environment names none;
marks for system parts.

A plugin (`-p tests.servers`), so that the addresses stand in the environment before the settings
are read. The workers of pytest-xdist inherit them; each has its own PostgreSQL database (by
pytest-django) and its own of Valkey.
"""

import atexit
import importlib
import os
import re
import subprocess
import tempfile
from collections.abc import Generator
from contextlib import suppress
from pathlib import Path

import pytest

from dev.messages import SetupError
from dev.postgres import Postgres
from dev.processes import ROOT, guard, spawn
from dev.system_parts import PARTS, reason_missing
from dev.valkey import Valkey

OURS = "OPSPORTAL_TEST_SERVERS"
WORKER_DATABASES = 15  # Valkey has 16: number 0 is for a run without workers


def require(mark: str) -> None:
    """Skip the test when a system part is not here; with CI=true fail instead."""
    if reason := reason_missing(mark):
        if os.environ.get("CI") == "true":
            pytest.fail(f"{mark}: {reason}", pytrace=False)
        pytest.skip(f"{mark}: {reason}")


def pytest_runtest_setup(item: pytest.Item) -> None:
    for mark in PARTS:
        if item.get_closest_marker(mark):
            require(mark)


@pytest.hookimpl(tryfirst=True)
def pytest_collection(session: pytest.Session) -> None:
    """Begin elsewhere than the other workers: of a new clone,
    each rewrites its share of the tests for all.
    """
    worker = re.fullmatch(r"gw(\d+)", os.environ.get("PYTEST_XDIST_WORKER", ""))
    if worker and session.config.args_source is pytest.Config.ArgsSource.TESTPATHS:
        modules = sorted(
            path.relative_to(ROOT).with_suffix("") for path in (ROOT / "tests").rglob("test_*.py")
        )
        begin = len(modules) * int(worker[1]) // int(os.environ["PYTEST_XDIST_WORKER_COUNT"])
        for module in modules[begin:] + modules[:begin]:
            with suppress(Exception, pytest.skip.Exception):  # pytest says so when it collects
                importlib.import_module(".".join(module.parts))


@pytest.hookimpl(wrapper=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> Generator[None]:
    if not early_config.known_args_namespace.help and not early_config.known_args_namespace.version:
        _provide()
    return (yield)


def _provide() -> None:
    """Set DATABASE_URL and REDIS_URL, from servers of our own where they are not given,
    and what else is required.
    """
    if not _given("SECRET_KEY"):
        os.environ["SECRET_KEY"] = "a key for the tests, which guards nothing and is long enough"
    if os.environ.get(OURS):
        if worker := re.fullmatch(r"gw(\d+)", os.environ.get("PYTEST_XDIST_WORKER", "")):
            number = 1 + int(worker[1]) % WORKER_DATABASES
            os.environ["REDIS_URL"] = re.sub(r"db=\d+$", f"db={number}", os.environ["REDIS_URL"])
    elif not (_given("DATABASE_URL") and _given("REDIS_URL")):
        try:
            _start()
        except SetupError as error:
            pytest.exit(f"the test servers did not start: {error}", returncode=3)


def _given(name: str) -> bool:
    return name in os.environ or f"{name}_FILE" in os.environ


def _start() -> None:
    """Start both servers in a temporary directory that goes with this process."""
    base = Path(tempfile.mkdtemp(prefix="opsportal-test-"))
    run, sockets, log = base / "run", base / "s", base / "servers.log"
    for directory in (run, sockets, base / "valkey"):
        directory.mkdir()
    atexit.register(_stop, guard(run, remove=base))
    postgres = Postgres(base / "postgres", sockets, fast=True)
    valkey = Valkey(base / "valkey", sockets, fast=True)
    postgres.prepare()
    with log.open("ab") as output:
        spawn("postgres", postgres.command(), run, stdout=output, stderr=output)
        spawn("valkey", valkey.command(), run, stdout=output, stderr=output)
    postgres.wait_ready()
    valkey.wait_ready()
    postgres.create_database("opsportal")
    os.environ[OURS] = str(base)
    if not _given("DATABASE_URL"):
        os.environ["DATABASE_URL"] = postgres.url("opsportal")
    if not _given("REDIS_URL"):
        os.environ["REDIS_URL"] = valkey.url()


def _stop(watchdog: "subprocess.Popen[bytes]") -> None:
    """Let the watchdog stop the servers, as it would had this process been killed,
    and wait for it.
    """
    if watchdog.stdin:
        watchdog.stdin.close()
    watchdog.wait(timeout=20)
