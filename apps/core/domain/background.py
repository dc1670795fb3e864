"""Starting background tasks from domain functions."""

from typing import Any

from django.db import transaction


def enqueue(task: str, *, countdown: float = 0, **arguments: Any) -> None:
    """Send the task of this full name on commit of the current transaction.

    A message may be lost, for example without a broker: all work has a row with its state, and beat sends it again.
    """

    def send() -> None:
        from celery import current_app  # imported late: only senders need it

        current_app.tasks[task].apply_async(kwargs=arguments, countdown=countdown, retry=False)

    transaction.on_commit(send, robust=True)
