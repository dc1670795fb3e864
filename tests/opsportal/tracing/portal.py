"""A portal that sends traces: the web server and a worker, as the units start them."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import urllib3
from django.contrib.staticfiles.finders import get_finders
from django.db import connection

from dev.processes import free_port

ROOT = Path(__file__).parents[3]
SECONDS = 90  # far more than a start takes on a busy machine
WEB = "opsportal.wsgi --preload --workers 1 --threads 2 --log-level warning"
WORKER = (
    "--quiet -A opsportal worker --queues default --concurrency 1 --without-gossip --without-mingle"
)


class Portal:
    """Processes on the database of the test, each with a log of its own."""

    def __init__(self, directory: Path, **settings: str) -> None:
        self.directory = directory
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        database = urlsplit(os.environ["DATABASE_URL"])._replace(
            path=f"/{connection.settings_dict['NAME']}"
        )
        self.environment = os.environ | {
            "DATABASE_URL": database.geturl(),
            "PORTAL_URL": self.url,
            "STATIC_DIR": str(write_manifest(directory)),
            "VAR_DIR": str(directory),
            **settings,
        }

    @contextmanager
    def serving(self):
        bind = ["--bind", f"127.0.0.1:{self.port}"]
        with self._running("gunicorn", *WEB.split(), *bind) as process:
            wait_until(lambda: self._answers(process))
            yield process

    @contextmanager
    def working(self):
        with self._running("celery", *WORKER.split()) as process:
            yield process

    def log(self, program: str) -> str:
        return (self.directory / program).read_text()

    def _answers(self, process: "subprocess.Popen[bytes]") -> bool:
        assert process.poll() is None, self.log("gunicorn")
        try:
            return urllib3.request("GET", f"{self.url}/healthz", retries=False).status == 200
        except urllib3.exceptions.HTTPError:
            return False

    @contextmanager
    def _running(self, program: str, *arguments: str):
        with (self.directory / program).open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-W", "ignore", "-m", program, *arguments],
                cwd=ROOT, env=self.environment, stdout=log, stderr=log,
            )  # fmt: skip
        try:
            yield process
        finally:
            process.terminate()
            process.wait(SECONDS)


def write_manifest(directory: Path) -> Path:
    """Write the list of static files that pages need, without the files."""
    paths = {path: path for finder in get_finders() for path, _ in finder.list([])}
    manifest = {"paths": paths, "version": "1.1", "hash": ""}
    (directory / "staticfiles.json").write_text(json.dumps(manifest))
    return directory


def wait_until(is_reached: Callable[[], object]) -> None:
    ends = time.monotonic() + SECONDS
    while not is_reached():
        assert time.monotonic() < ends, "it did not happen"
        time.sleep(0.05)
