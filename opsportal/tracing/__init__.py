"""Traces of requests and tasks for a collector of OpenTelemetry; see docs/production.md.

Without `OTEL_EXPORTER_OTLP_ENDPOINT`, nothing of OpenTelemetry is loaded. A server calls
`instrument` before it forks, so that its processes share that memory, and each process that serves
requests or runs tasks calls `start`: the thread that sends spans would not survive a fork.
"""

import logging
from importlib import import_module
from typing import TYPE_CHECKING, Any

from django.conf import settings

if TYPE_CHECKING:
    from celery import Celery

logger = logging.getLogger(__name__)

#: Names of the services, as they appear in traces.
WEB = "opsportal-web"
WORKER = "opsportal-worker"
BEAT = "opsportal-beat"


def instrument(celery_app: "Celery") -> None:
    """Let requests, tasks, queries and calls of other servers make spans, if traces are on."""
    if problem := find_problem():
        logger.warning(problem)
    elif settings.TRACES:
        import_module("opsportal.tracing.instruments").instrument(celery_app)


def start(service: str) -> None:
    """Sample the traces of this process, and export them. Call it again after a fork."""
    if settings.TRACES and not find_problem():
        import_module("opsportal.tracing.export").start(service)


def find_problem() -> str:
    """Return why there are no traces although they are switched on, or an empty text."""
    if not settings.TRACES:
        return ""
    try:
        import_module("opsportal.tracing.instruments")
        import_module("opsportal.tracing.export")
    except ModuleNotFoundError as error:
        return (
            f"OTEL_EXPORTER_OTLP_ENDPOINT is set, but the package {error.name} is missing: there "
            "are no traces. Install opsportal[traces], see docs/production.md."
        )
    return ""


def stop(**_: Any) -> None:
    """Send what this process still has, for two seconds at most."""
    if settings.TRACES and not find_problem():
        import_module("opsportal.tracing.export").stop()
