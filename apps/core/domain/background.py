"""The one way to start a background task from a service."""

from typing import Any

from django.db import transaction


def enqueue(task: str, *, countdown: float = 0, **arguments: Any) -> None:
    """Send the task of this full name once the current transaction is committed.

    A message lost on the way (no broker just then) is not the end of the work: whatever must be done has a row with
    its state, and a beat task sends what waits again.
    """
    transaction.on_commit(lambda: _send(task, countdown, arguments), robust=True)


def _send(task: str, countdown: float, arguments: dict[str, Any]) -> None:
    from celery import current_app  # only who sends needs what it takes

    current_app.tasks[task].apply_async(kwargs=arguments, countdown=countdown, retry=False)
