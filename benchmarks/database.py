"""A PostgreSQL for a benchmark, and Django on it."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dev.postgres import Postgres
from dev.processes import guard, spawn


@contextmanager
def database(directory: Path | None = None) -> Iterator[tuple[Path, str]]:
    """Yield its directory and URL. It is deleted after the benchmark,
    unless a `directory` is given.
    """
    scratch = Path(tempfile.mkdtemp(prefix="opsportal-benchmark-"))
    base, sockets = directory or scratch, scratch / "s"
    for each in (base, base / "run", sockets):
        each.mkdir(exist_ok=True)
    watchdog = guard(base / "run", remove=scratch)
    try:
        postgres = Postgres(base / "postgres", sockets)
        postgres.prepare()
        with (base / "postgres.log").open("ab") as log:
            server = spawn(
                "postgres", postgres.command(), base / "run", stdout=log, stderr=subprocess.STDOUT
            )
        postgres.wait_ready(server.poll)
        postgres.create_database("opsportal")
        yield base, postgres.url("opsportal")
    finally:
        watchdog.stdin.close()
        watchdog.wait(timeout=600)
        shutil.rmtree(scratch, ignore_errors=True)


def settings(base: Path, url: str) -> dict[str, str]:
    return {
        "DATABASE_URL": url,
        "REDIS_URL": "redis://localhost:1/0",
        "SECRET_KEY": "for the benchmarks alone: fifty characters and more, none of them secret",
        "VAR_DIR": str(base / "var"),
    }


def set_up_django(base: Path, url: str, **more: str) -> None:
    """Set up Django with these settings, and create the tables."""
    _set_up(base, url, **more)
    from django.core.management import call_command

    call_command("migrate", verbosity=0, skip_checks=True)


def set_up_without_database() -> None:
    """Set up Django for a benchmark that reads and writes no rows."""
    _set_up(Path("/nonexistent"), "postgres://localhost:1/none")


def _set_up(base: Path, url: str, **more: str) -> None:
    os.environ |= settings(base, url) | {
        "DJANGO_SETTINGS_MODULE": "opsportal.settings",
        "ALLOWED_HOSTS": "testserver",
    }
    os.environ |= more
    import django

    django.setup()
