"""Enqueue background tasks from domain functions."""

from functools import cache
from typing import Any

from django.db import transaction
from django.utils.module_loading import autodiscover_modules


def enqueue(
    task: str, *, countdown: float = 0, queue: str = "", most_waiting: int = 0, **arguments: Any
) -> None:
    """Enqueue the task of this name when the current transaction commits.

    The message goes to the task's own queue or to `queue`. With `most_waiting`, nothing is sent if
    that many messages wait in `queue` already. A message may be lost, for example without a broker:
    all work has a row with its state, and beat enqueues it again.
    """

    def send() -> None:
        app = celery_app()
        if most_waiting:
            with app.connection_or_acquire() as broker:
                if broker.default_channel.queue_declare(queue).message_count >= most_waiting:
                    return
        options: dict[str, Any] = {"queue": queue} if queue else {}
        app.tasks[task].apply_async(kwargs=arguments, countdown=countdown, retry=False, **options)

    transaction.on_commit(send, robust=True)


@cache
def celery_app() -> Any:
    """Return the Celery application with the tasks of all apps.

    It is imported late, because only senders need it.
    """
    from opsportal.celery import app

    autodiscover_modules("tasks")
    return app
