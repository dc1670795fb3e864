"""Spans of tasks: one for who sends a task, and its child for the worker that runs it.

OpenTelemetry's own for Celery never ends the span of a task that could not be sent, and none of
beat's, which sends tasks by name: the next ones become its children, and memory grows.
"""

from contextvars import Token
from typing import Any

from celery import Celery, Task
from celery.signals import (
    before_task_publish,
    task_failure,
    task_postrun,
    task_prerun,
    task_retry,
)
from django_guid import get_guid
from opentelemetry import trace
from opentelemetry.context import Context, attach, detach
from opentelemetry.propagate import extract, inject
from opentelemetry.trace import Span, SpanKind, StatusCode, set_span_in_context

from opsportal.tracing.cleaning import REQUEST_ID

_HEADERS = ("traceparent", "tracestate")

_tracer = trace.get_tracer(__name__)
#: The spans of running tasks by the IDs of the tasks, and what ends their being current.
_running: dict[str, tuple[Span, Token[Context]]] = {}


def instrument_tasks(app: Celery) -> None:
    """Surround the sending and the runs of tasks."""
    send_task = app.send_task

    def send_traced_task(name: str, *arguments: Any, **options: Any) -> Any:
        with _tracer.start_as_current_span(f"send {name}", kind=SpanKind.PRODUCER):
            return send_task(name, *arguments, **options)

    app.send_task = send_traced_task  # type: ignore[method-assign]
    before_task_publish.connect(_on_publish, weak=False)
    task_prerun.connect(_on_start, weak=False)
    task_failure.connect(_on_failure, weak=False)
    task_retry.connect(_on_retry, weak=False)
    task_postrun.connect(_on_end, weak=False)


def _on_publish(headers: dict[str, Any], routing_key: str, **_: Any) -> None:
    span = trace.get_current_span()
    span.set_attributes(_describe(headers["id"], routing_key, "send"))
    inject(headers)


def _on_start(task: Task, task_id: str, **_: Any) -> None:
    carrier = {name: task.request.get(name) for name in _HEADERS if task.request.get(name)}
    queue = (task.request.get("delivery_info") or {}).get("routing_key") or ""
    span = _tracer.start_span(
        f"run {task.name}",
        context=extract(carrier, Context()),
        kind=SpanKind.CONSUMER,
        attributes={**_describe(task_id, queue, "process"), REQUEST_ID: get_guid() or ""},
    )
    _running[task_id] = span, attach(set_span_in_context(span))


def _on_failure(task_id: str, exception: BaseException, **_: Any) -> None:
    _note_error(task_id, exception)


def _on_retry(request: Any, reason: BaseException, **_: Any) -> None:
    # The reason is an exception of Celery's that may hold the one that was raised.
    _note_error(request.id, getattr(reason, "exc", None) or reason)


def _note_error(task_id: str, error: BaseException) -> None:
    if task_id in _running:
        span, _token = _running[task_id]
        span.set_attribute("error.type", type(error).__qualname__)
        span.set_status(StatusCode.ERROR)


def _on_end(task_id: str, state: str | None = None, **_: Any) -> None:
    if task_id in _running:
        span, token = _running.pop(task_id)
        span.set_attribute("celery.state", state or "")
        span.end()
        detach(token)


def _describe(task_id: str, queue: str, operation: str) -> dict[str, str]:
    return {
        "messaging.system": "celery",
        "messaging.operation.type": operation,
        "messaging.destination.name": queue,
        "messaging.message.id": task_id,
    }
