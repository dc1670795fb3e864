"""Heartbeats of beat and of the workers, each from a thread of its own process.

They need only the database, so the health page can tell a dead worker from an unavailable queue.
"""

import logging
import platform
import threading
from collections.abc import Callable
from typing import Any

from celery.signals import beat_init, worker_ready, worker_shutdown

logger = logging.getLogger(__name__)

SECONDS = 10.0
# How long a stopping process waits for its last heartbeat to be written.
STOP_SECONDS = 10.0


class Heart:
    """Beats every `SECONDS` in a thread, from `start` until `stop`.

    `find_name` is asked for the name before each beat. Of the names that belong to this process
    alone, the others have no heartbeat, and once it stops, none has.
    """

    def __init__(self, find_name: Callable[[], str], own_names: tuple[str, ...]) -> None:
        self._find_name = find_name
        self._own_names = own_names
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="heartbeat", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join(STOP_SECONDS)

    def _run(self) -> None:
        while not self._stopping.is_set():
            self._try(self._beat)
            self._stopping.wait(SECONDS)
        self._try(self._forget)

    def _beat(self) -> None:
        from django.utils import timezone

        from apps.core.domain.health import beat_heart

        name = self._find_name()
        self._forget(except_for=name)
        beat_heart(name=name, at=timezone.now(), detail={"host": platform.node()})

    def _forget(self, *, except_for: str = "") -> None:
        from apps.core.domain.health import forget_heart

        for name in self._own_names:
            if name != except_for:
                forget_heart(name=name)

    def _try(self, write: Callable[[], None]) -> None:
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
def on_beat_init(sender: Any, **_: Any) -> None:
    from apps.core.domain.health import BEAT, WAITING_BEAT

    turn = sender.scheduler.turn
    turn.take()
    waiting = f"{WAITING_BEAT}{platform.node()}"
    _begin(Heart(lambda: BEAT if turn.is_ours else waiting, (waiting,)))


@worker_ready.connect
def on_worker_ready(sender: Any, **_: Any) -> None:
    name = f"worker {sender.hostname}"
    _begin(Heart(lambda: name, (name,)))


@worker_shutdown.connect
def stop_hearts(**_: Any) -> None:
    """Stop the heartbeats of this process."""
    while _hearts:
        _hearts.pop().stop()


def _begin(heart: Heart) -> None:
    _hearts.append(heart)
    heart.start()
