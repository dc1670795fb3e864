"""Real workers of the queue `archive`, and beat."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Self

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


class CeleryProcess:
    """A process of Celery with its children, started again where it ends by itself,
    and by `start` after a kill.
    """

    def __init__(self, environment: Mapping[str, str], log: Path, *command: str) -> None:
        self._environment, self._log, self._command = environment, log, command
        self.start()

    def start(self) -> Self:
        with self._log.open("ab") as output:
            self._process = subprocess.Popen(
                [
                    *SUPERVISED,
                    sys.executable,
                    "-m",
                    "celery",
                    "--quiet",
                    "-A",
                    "opsportal",
                    *self._command,
                ],
                cwd=ROOT,
                env=self._environment | {"LOG_LEVEL": "INFO"},
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        return self

    def children(self) -> list[int]:
        """Return the processes of the pool."""
        return [pid for celery in _children(self._process.pid) for pid in _children(celery)]

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
) -> Iterator[CeleryProcess]:
    options = (f"--queues={queue}", f"--concurrency={concurrency}")
    worker = CeleryProcess(environment, directory / f"{queue}.log", *WORKER, *options)
    try:
        yield worker
    finally:
        worker.kill()


@contextmanager
def beat(environment: Mapping[str, str], directory: Path) -> Iterator[CeleryProcess]:
    process = CeleryProcess(
        environment, directory / "beat.log", *BEAT, f"--schedule={directory / 'schedule'}"
    )
    try:
        yield process
    finally:
        process.kill()
