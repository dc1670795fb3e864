"""Starting background tasks from domain functions."""

from typing import Any

from django.db import transaction


def enqueue(task: str, *, countdown: float = 0, queue: str = "", most_waiting: int = 0, **arguments: Any) -> None:
    """Send the task of this full name on commit of the current transaction, to its own queue or to `queue`.

    With `most_waiting`, no message is sent where so many wait in `queue` already.
    A message may be lost, for example without a broker: all work has a row with its state, and beat sends it again.
    """

    def send() -> None:
        from celery import current_app  # imported late: only senders need it

        if most_waiting:
            with current_app.connection_or_acquire() as broker:
                if broker.default_channel.queue_declare(queue).message_count >= most_waiting:
                    return
        options: dict[str, Any] = {"queue": queue} if queue else {}
        current_app.tasks[task].apply_async(kwargs=arguments, countdown=countdown, retry=False, **options)

    transaction.on_commit(send, robust=True)
