"""Real processes of the portal: workers of the queue `archive`, beat, web."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Self
from urllib.parse import urlsplit

ROOT = Path(__file__).parents[2]
# As a service manager does: Celery ends of some losses of its broker.
SUPERVISED = ("sh", "-c", 'while :; do "$@"; sleep 0.2; done', "sh")
WORKER = (
    "worker",
    "--loglevel=INFO",
    "--hostname=archive@test",
    "--without-gossip",
    "--without-mingle",
)
BEAT = ("beat", "--loglevel=INFO", "--pidfile=")
CELERY = ("celery", "--quiet", "-A", "opsportal")
WEB = ("gunicorn", "opsportal.wsgi", "--workers=1", "--threads=4", "--preload")


class PortalProcess:
    """A process of the portal with its children, started again where it ends by itself,
    and by `start` after a kill.
    """

    def __init__(self, environment: Mapping[str, str], log: Path, *command: str) -> None:
        self._environment, self._log, self._command = environment, log, command
        self.start()

    def start(self) -> Self:
        with self._log.open("ab") as output:
            self._process = subprocess.Popen(
                [*SUPERVISED, sys.executable, "-m", *self._command],
                cwd=ROOT,
                env=self._environment | {"LOG_LEVEL": "INFO"},
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        return self

    def children(self) -> list[int]:
        """Return the processes of the pool."""
        return [pid for parent in _children(self._process.pid) for pid in _children(parent)]

    def kill(self) -> None:
        """Kill it and all that it has started."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(60)


def _children(parent: int) -> list[int]:
    with suppress(OSError):
        tasks = Path(f"/proc/{parent}/task").glob("*/children")
        return [int(pid) for file in tasks for pid in file.read_text().split()]
    return []


@contextmanager
def archive_worker(
    environment: Mapping[str, str], directory: Path, *, concurrency: int = 2, queue: str = "archive"
) -> Iterator[PortalProcess]:
    options = (f"--queues={queue}", f"--concurrency={concurrency}")
    log = directory / f"{queue}.log"
    worker = PortalProcess(environment, log, *CELERY, *WORKER, *options)
    try:
        yield worker
    finally:
        worker.kill()


@contextmanager
def beat(environment: Mapping[str, str], directory: Path) -> Iterator[PortalProcess]:
    schedule = f"--schedule={directory / 'schedule'}"
    process = PortalProcess(environment, directory / "beat.log", *CELERY, *BEAT, schedule)
    try:
        yield process
    finally:
        process.kill()


@contextmanager
def web(environment: Mapping[str, str], directory: Path) -> Iterator[PortalProcess]:
    """Serve the portal at PORTAL_URL, a port of this machine."""
    address = urlsplit(environment["PORTAL_URL"]).netloc
    process = PortalProcess(environment, directory / "web.log", *WEB, f"--bind={address}")
    try:
        yield process
    finally:
        process.kill()
