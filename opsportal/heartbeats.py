"""Heartbeats of beat and of the workers, each from a thread of its own process.

They need only the database, so the health page can tell a dead worker from an unavailable queue.
"""

import logging
import threading
from typing import Any

from celery.signals import beat_embedded_init, beat_init, worker_ready, worker_shutdown

logger = logging.getLogger(__name__)

SECONDS = 10.0
# How long a stopping process waits for its last heartbeat to be written.
STOP_SECONDS = 10.0


class Heart:
    """Beats every `SECONDS` in a thread, from `start` until `stop`.

    Stopping also deletes the heartbeat of the process.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="heartbeat", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join(STOP_SECONDS)

    def _run(self) -> None:
        from django.utils import timezone

        from apps.core.domain.health import beat_heart, forget_heart

        while not self._stopping.is_set():
            self._try(lambda: beat_heart(name=self.name, at=timezone.now()))
            self._stopping.wait(SECONDS)
        self._try(lambda: forget_heart(name=self.name))

    def _try(self, write: Any) -> None:
        from django.db import DatabaseError, connection

        try:
            write()
        except DatabaseError as error:
            # The database is unavailable; the process continues without heartbeats.
            logger.debug("no heartbeat: %s", error)
        finally:
            # Processes that the pool forks must not inherit the connection.
            connection.close()


_hearts: list[Heart] = []


@beat_init.connect
@beat_embedded_init.connect
def on_beat_init(**_: Any) -> None:
    _begin("beat")


@worker_ready.connect
def on_worker_ready(sender: Any, **_: Any) -> None:
    _begin(f"worker {sender.hostname}")


@worker_shutdown.connect
def on_worker_shutdown(**_: Any) -> None:
    while _hearts:
        _hearts.pop().stop()


def _begin(name: str) -> None:
    heart = Heart(name)
    _hearts.append(heart)
    heart.start()
