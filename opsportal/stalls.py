"""Ends a worker that takes no messages although some wait, so that its unit starts it again.

Celery may stop taking messages after a lost connection to Redis, while the process lives and is
connected again (celery/celery#8030, #8091, #10205).
"""

import logging
import os
import threading
import time
from typing import Any

from celery.platforms import EX_FAILURE
from celery.signals import worker_ready

logger = logging.getLogger(__name__)

#: Time between two looks.
LOOK_SECONDS = 10.0
#: An idle worker takes a message at once.
IDLE_SECONDS = 60.0
#: A worker with tasks may take none until they end; longer than `CELERY_TASK_TIME_LIMIT`.
BUSY_SECONDS = 660.0


class StallWatch:
    """For how long messages have waited while a worker took none. Times are in seconds."""

    def __init__(self, now: float) -> None:
        self._taken = 0
        self._since = now
        self._looked = now

    def is_stalled(self, *, waiting: int, taken: int, is_busy: bool, now: float) -> bool:
        """Return whether the worker has stalled.

        `waiting` is the number of messages in its queues, `taken` of those taken since its start.
        """
        # A process that was stopped, or had no processor, took none for that reason.
        was_paused = now - self._looked > 3 * LOOK_SECONDS
        self._looked = now
        if not waiting or taken != self._taken or was_paused:
            self._taken = taken
            self._since = now
        return now - self._since >= (BUSY_SECONDS if is_busy else IDLE_SECONDS)


@worker_ready.connect
def on_worker_ready(sender: Any, **_: Any) -> None:
    queues = list(sender.app.amqp.queues.consume_from)
    thread = threading.Thread(target=_run, args=[queues], name="stalls", daemon=True)
    thread.start()


def _run(queues: list[str]) -> None:
    # Imported here, because web servers need nothing of workers.
    from celery.worker import state

    watch = StallWatch(time.monotonic())
    while True:
        time.sleep(LOOK_SECONDS)
        is_stalled = watch.is_stalled(
            waiting=_count_waiting(queues),
            taken=sum(state.total_count.values()),
            is_busy=bool(state.active_requests),
            now=time.monotonic(),
        )
        if is_stalled:
            logger.critical("Messages wait, and this worker takes none: it ends.")
            # The main thread may be the one that hangs. What the pool runs is repeated.
            os._exit(EX_FAILURE)


def _count_waiting(queues: list[str]) -> int:
    """Return how many messages wait in these queues; 0 while Redis is away."""
    from django.conf import settings
    from redis import RedisError

    from opsportal.servers import redis_client

    try:
        with redis_client(settings.REDIS_URL) as client:
            return sum(client.llen(queue) for queue in queues)
    except RedisError:
        return 0
