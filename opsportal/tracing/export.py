"""The share of traces that a process keeps, and how they reach the collector."""

import atexit
import logging
import os
import platform
import struct
import time
from collections.abc import Sequence
from mmap import mmap
from typing import Any

from django.conf import settings
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http import trace_exporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider, sampling
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.trace import SpanKind

from opsportal.tracing.cleaning import clean
from opsportal.version import VERSION

logger = logging.getLogger(__name__)

#: Pause after a failed try, in which spans are dropped.
PAUSE_SECONDS = 30.0
#: How long a process that ends waits for the collector.
STOP_MILLISECONDS = 2_000
_SAMPLERS = {
    "always_on": sampling.ALWAYS_ON,
    "always_off": sampling.ALWAYS_OFF,
    "parentbased_always_on": sampling.DEFAULT_ON,
    "parentbased_always_off": sampling.DEFAULT_OFF,
}
_BY_SHARE: dict[str, type[sampling.TraceIdRatioBased] | type[sampling.ParentBasedTraceIdRatio]] = {
    "traceidratio": sampling.TraceIdRatioBased,
    "parentbased_traceidratio": sampling.ParentBasedTraceIdRatio,
}


class Sampler(sampling.Sampler):
    """Lets only requests and tasks begin traces.

    Heartbeats and other threads query the database all the time.
    """

    def __init__(self, sampler: sampling.Sampler) -> None:
        self._sampler = sampler

    def should_sample(
        self, parent_context: Context | None, trace_id: int, name: str, kind: Any = None, *rest: Any
    ) -> sampling.SamplingResult:
        parent = trace.get_current_span(parent_context).get_span_context()
        if kind is SpanKind.CLIENT and not parent.is_valid:
            return sampling.SamplingResult(sampling.Decision.DROP)
        return self._sampler.should_sample(parent_context, trace_id, name, kind, *rest)

    def get_description(self) -> str:
        return self._sampler.get_description()


class Pause:
    """The time until which the collector is not tried, by the shared clock; 0 if it works.

    All processes that a server forks share it: processes of workers live for minutes, and otherwise
    each would wait for a dead collector.
    """

    def __init__(self) -> None:
        self._memory = mmap(-1, 8)

    def read(self) -> float:
        return float(struct.unpack("d", self._memory[:])[0])

    def write(self, until: float) -> None:
        self._memory[:] = struct.pack("d", until)


_pause = Pause()


class Exporter(SpanExporter):
    """Cleans spans and sends them; while the collector takes none, drops them.

    An outage is one line of the log, not four for each try.
    """

    def __init__(self, endpoint: str, pause: Pause = _pause, **options: Any) -> None:
        self._endpoint = endpoint
        self._exporter = OTLPSpanExporter(f"{endpoint.rstrip('/')}/v1/traces", **options)
        self._reason = _ReasonFilter()
        self._pause = pause
        trace_exporter._logger.addFilter(self._reason)

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Send spans from the thread of the processor."""
        pause_until = self._pause.read()
        if time.monotonic() < pause_until:
            return SpanExportResult.FAILURE
        self._reason.text = ""
        result = self._exporter.export([clean(span) for span in spans])
        if result is SpanExportResult.FAILURE:
            self._log_failure()
            self._pause.write(time.monotonic() + PAUSE_SECONDS)
        elif pause_until:
            logger.info("The collector of traces takes them again.")
            self._pause.write(0.0)
        return result

    def _log_failure(self) -> None:
        if not self._pause.read():
            logger.warning(
                "The collector of traces, %s, takes none, and they are dropped until it does: %s",
                self._endpoint,
                self._reason.text,
            )

    def shutdown(self) -> None:
        self._exporter.shutdown()  # type: ignore[no-untyped-call]


class _ReasonFilter(logging.Filter):
    """Keeps the first line of the library about a failure, and lets none pass."""

    text = ""

    def filter(self, record: logging.LogRecord) -> bool:
        if not self.text:
            self.text, _, _ = record.getMessage().partition(" encountered while ")
        return False


class Processor(BatchSpanProcessor):
    """Waits at its end for the collector, but not for half a minute as the library does."""

    def shutdown(self) -> None:
        self._batch_processor.shutdown(timeout_millis=STOP_MILLISECONDS)


def start(service: str) -> None:
    """Keep and send spans of this process, from a thread of its own."""
    # A full queue drops spans, which is no problem of the portal's.
    logging.getLogger("opentelemetry.sdk").setLevel(logging.ERROR)
    resource = Resource.create(
        {
            "service.name": service,
            "service.version": VERSION,
            "service.instance.id": f"{platform.node()}:{os.getpid()}",
        }
    )
    provider = TracerProvider(
        sampler=Sampler(_choose_sampler()), resource=resource, shutdown_on_exit=False
    )
    certificate = settings.OTEL_EXPORTER_OTLP_CERTIFICATE
    exporter = Exporter(
        settings.OTEL_EXPORTER_OTLP_ENDPOINT,
        headers=settings.OTEL_EXPORTER_OTLP_HEADERS,
        certificate_file=str(certificate) if certificate else None,
    )
    provider.add_span_processor(Processor(exporter))
    trace.set_tracer_provider(provider)
    atexit.register(stop)


def stop() -> None:
    """Send what is left."""
    provider = trace.get_tracer_provider()
    if isinstance(provider, TracerProvider):
        provider.shutdown()


def _choose_sampler() -> sampling.Sampler:
    name = settings.OTEL_TRACES_SAMPLER
    if name in _BY_SHARE:
        return _BY_SHARE[name](settings.OTEL_TRACES_SAMPLER_ARG)
    return _SAMPLERS[name]
