"""The Celery worker of the portal."""

from typing import Any

from celery.apps import worker
from celery.platforms import EX_FAILURE

from opsportal import finish_start, tracing


class Worker(worker.Worker):
    """Loads the tasks of all apps, and exits at once after a fatal error.

    Celery would wait up to nine minutes for running tasks and accept no others; the service manager
    restarts the process much sooner. Interrupted tasks are repeated.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        # Imported here, because beat sends tasks by name and needs none of them.
        self.app.autodiscover_tasks()
        tracing.instrument(self.app)
        super().__init__(*arguments, **options)
        finish_start()

    def stop(self, in_sighandler: bool = False, exitcode: int | None = None) -> Any:
        if exitcode == EX_FAILURE:
            self.exitcode = exitcode
            self.terminate(in_sighandler)
        return super().stop(in_sighandler, exitcode)
