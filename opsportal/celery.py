"""The Celery application; its settings are the `CELERY_*` names of `opsportal.settings`."""

import os
from functools import cached_property
from typing import Any

from celery import Celery
from celery.signals import before_task_publish, task_failure, task_postrun, task_prerun

from opsportal import heartbeats, stalls  # noqa: F401 -- connect their signals
from opsportal.tracing import processes  # noqa: F401 -- likewise

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


# As the integration of django-guid does, which would let each command load Celery. Imported, it
# reads Django's settings, whose name is set only above.
@before_task_publish.connect
def on_publish(headers: dict[str, Any], **_: Any) -> None:
    """Give a task the ID of the request or task that sends it."""
    from django_guid import get_guid

    headers["request_id"] = get_guid()


@task_prerun.connect
def on_start(task: Any, **_: Any) -> None:
    """Let the lines of the log have the ID of the task's request, or a new one."""
    from django_guid import set_guid
    from django_guid.utils import generate_guid

    set_guid(task.request.get("request_id") or generate_guid())


@task_postrun.connect
def on_end(**_: Any) -> None:
    from django_guid import clear_guid

    clear_guid()


app = App("opsportal")
app.config_from_object("django.conf:settings", namespace="CELERY")
