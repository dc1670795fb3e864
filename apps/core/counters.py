"""Counters that all processes share, in Redis, for `/metrics`: failed responses and tasks.

They start again from 0 with an empty Redis, which Prometheus expects of counters. Without Redis,
nothing is counted: `opsportal_check_ok` says so.
"""

import logging
from collections.abc import Iterable

from django.conf import settings
from django.core.cache import cache

log = logging.getLogger(__name__)

#: The label of tasks that are not periodic.
OTHER_TASKS = "other"
STATUSES = (500, 502, 503, 504)


def count_response(status: int) -> None:
    """Count a response of one of `STATUSES`; others are not counted."""
    if status in STATUSES:
        _increase(f"responses {status}")


def count_failed_task(task: str) -> None:
    """Count a task that ended with an error."""
    _increase(f"failed {task if task in settings.CELERY_BEAT_SCHEDULE else OTHER_TASKS}")


def failed_responses() -> dict[str, int]:
    """Return the number of failed responses by status."""
    return _read("responses", map(str, STATUSES))


def failed_tasks() -> dict[str, int]:
    """Return the number of failed tasks: of each periodic one, and of all others."""
    return _read("failed", [*sorted(settings.CELERY_BEAT_SCHEDULE), OTHER_TASKS])


def _increase(name: str) -> None:
    key = f"counter {name}".replace(" ", ":")
    try:
        cache.add(key, 0, timeout=None)
        cache.incr(key)
    except Exception as error:
        # Any error of the driver: what is counted matters more than its count.
        log.debug("not counted: %s: %s", name, error)


def _read(kind: str, labels: Iterable[str]) -> dict[str, int]:
    keys = {label: f"counter:{kind}:{label}" for label in labels}
    try:
        counts = cache.get_many(keys.values())
    except Exception as error:
        # Any error of the driver: no series is better than a wrong 0.
        log.debug("counters cannot be read: %s", error)
        return {}
    return {label: counts.get(key, 0) for label, key in keys.items()}
