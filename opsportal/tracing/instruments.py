"""What makes spans: requests, tasks, queries, and calls of other servers."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from urllib.parse import SplitResult

from celery import Celery
from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django_guid import get_guid
from opentelemetry import trace
from opentelemetry.context import Context, attach, detach
from opentelemetry.instrumentation.django import DjangoInstrumentor
from opentelemetry.instrumentation.psycopg import PsycopgInstrumentor
from opentelemetry.instrumentation.urllib3 import URLLib3Instrumentor
from opentelemetry.propagate import inject, set_global_textmap
from opentelemetry.trace import Span, SpanKind, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from apps.core.http import client
from opsportal.tracing.cleaning import REQUEST_ID
from opsportal.tracing.tasks import instrument_tasks

#: Probes of load balancers, and files, of which nobody reads a trace.
UNTRACED = "/healthz$,/readyz$,/static/"

_tracer = trace.get_tracer(__name__)


def instrument(celery_app: Celery) -> None:
    """Instrument the libraries; until `export.start`, their spans cost next to nothing."""
    # The stable names of attributes, which `cleaning` keeps.
    os.environ["OTEL_SEMCONV_STABILITY_OPT_IN"] = "http,database"
    # No baggage, which a client could send along to all servers that the portal calls.
    set_global_textmap(TraceContextTextMapPropagator())
    # Inside the middleware that gives a request its ID.
    settings.MIDDLEWARE.insert(1, f"{__name__}.isolate")
    DjangoInstrumentor().instrument(
        middleware_position=2, request_hook=_add_request_id, excluded_urls=UNTRACED
    )
    PsycopgInstrumentor().instrument()
    URLLib3Instrumentor().instrument()
    client.trace_request = trace_request
    instrument_tasks(celery_app)


def isolate(
    get_response: Callable[[HttpRequest], HttpResponse],
) -> Callable[[HttpRequest], HttpResponse]:
    """Middleware: no request belongs to the trace of another, or to one that a client names.

    The span of a request whose error page fails stays the current one of its thread. `traceparent`
    is taken from a proxy alone, as `X-Forwarded-For` is: it decides which traces are kept.
    """

    def answer(request: HttpRequest) -> HttpResponse:
        if not settings.SECURE_PROXY_SSL_HEADER:
            request.META.pop("HTTP_TRACEPARENT", None)
        token = attach(Context())
        try:
            return get_response(request)
        finally:
            detach(token)

    return answer


def _add_request_id(span: Span, _: HttpRequest) -> None:
    if request_id := get_guid():
        span.set_attribute(REQUEST_ID, request_id)


@contextmanager
def trace_request(
    method: str, url: SplitResult, headers: dict[str, str]
) -> Iterator[Callable[[int], None]]:
    """Surround a request of the portal to another server, which gets the ID of the trace."""
    attributes: dict[str, str | int] = {
        "http.request.method": method,
        "server.address": url.hostname or "",
        "server.port": url.port or (443 if url.scheme == "https" else 80),
        "url.scheme": url.scheme,
    }
    with _tracer.start_as_current_span(method, kind=SpanKind.CLIENT, attributes=attributes) as span:
        inject(headers)

        def set_status(status: int) -> None:
            span.set_attribute("http.response.status_code", status)
            if status >= 400:
                span.set_status(StatusCode.ERROR)

        yield set_status
