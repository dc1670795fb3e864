"""The Celery worker of the portal."""

from typing import Any

from celery.apps import worker
from celery.platforms import EX_FAILURE

from opsportal import finish_start


class Worker(worker.Worker):
    """Loads the tasks of all apps, and ends at once where it ends of an error.

    Celery would wait for the tasks that run, nine minutes at most, and take no other: its service
    manager starts it again much sooner. What was interrupted is done again.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        # here, as beat sends tasks by their names and needs none of them
        self.app.autodiscover_tasks()
        super().__init__(*arguments, **options)
        finish_start()

    def stop(self, in_sighandler: bool = False, exitcode: int | None = None) -> Any:
        if exitcode == EX_FAILURE:
            self.exitcode = exitcode
            self.terminate(in_sighandler)
        return super().stop(in_sighandler, exitcode)
