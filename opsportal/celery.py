"""The Celery application; its settings are the `CELERY_*` names of `opsportal.settings`."""

import os
from functools import cached_property
from typing import Any

from celery import Celery
from celery.signals import task_failure

from opsportal import heartbeats  # noqa: F401 -- connects its signals

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "opsportal.settings")
# Django's checks load every page. They belong to `manage.py check`, not to the start of a worker.
os.environ.setdefault("CELERY_SKIP_CHECKS", "true")


class App(Celery):
    """Celery with the portal's own worker, which is imported only by workers."""

    @cached_property
    def Worker(self) -> Any:  # noqa: N802 -- Celery's name
        from opsportal.worker import Worker

        return self.subclass_with_self(Worker)


@task_failure.connect
def on_task_failure(sender: Any, **_: Any) -> None:
    """Count a task that ended with an error, in the process that ran it."""
    from apps.core.counters import count_failed_task

    count_failed_task(sender.name)


app = App("opsportal")
app.config_from_object("django.conf:settings", namespace="CELERY")
