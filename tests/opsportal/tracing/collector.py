"""A collector of OpenTelemetry: takes traces by OTLP over HTTP, and decodes them.

It is also a server that the portal calls: it answers GET, and notes the headers.
"""

import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)


class Collector(ThreadingHTTPServer):
    """Listens on a port; `bodies` are what it was sent."""

    daemon_threads = True

    def __init__(self, port: int = 0, status: int = 200) -> None:
        self.bodies: list[bytes] = []
        self.headers_of_calls: list[dict[str, str]] = []
        self.status = status
        super().__init__(("127.0.0.1", port), _Handler)
        self.url = f"http://127.0.0.1:{self.server_port}"

    @contextmanager
    def running(self):
        thread = threading.Thread(target=self.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield self
        finally:
            self.shutdown()
            thread.join()
            self.server_close()

    def spans(self) -> list["Span"]:
        """Return all spans, in the order in which they came."""
        spans = []
        for body in list(self.bodies):
            for group in ExportTraceServiceRequest.FromString(body).resource_spans:
                resource = values_of(group.resource.attributes)
                for scope in group.scope_spans:
                    spans += [Span(span, resource) for span in scope.spans]
        return spans


class Span:
    """A span, with the attributes of the process that made it."""

    def __init__(self, span, resource: dict) -> None:
        self.name = span.name
        self.kind = span.SpanKind.Name(span.kind).removeprefix("SPAN_KIND_")
        self.trace = span.trace_id.hex()
        self.id = span.span_id.hex()
        self.parent = span.parent_span_id.hex()
        self.attributes = values_of(span.attributes)
        self.is_error = span.status.code == 2
        self.message = span.status.message
        self.events = list(span.events)
        self.resource = resource
        self.service = resource["service.name"]


def values_of(attributes) -> dict:
    return {pair.key: getattr(pair.value, pair.value.WhichOneof("value")) for pair in attributes}


class _Handler(BaseHTTPRequestHandler):
    server: Collector

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        is_known = self.path == "/v1/traces"
        is_protobuf = self.headers["Content-Type"] == "application/x-protobuf"
        status = self.server.status if is_known and is_protobuf else 400
        if status == 200:
            self.server.bodies.append(body)
        self.send_response(status)
        self.send_header("Content-Type", "application/x-protobuf")
        self.end_headers()
        self.wfile.write(ExportTraceServiceResponse().SerializeToString())

    def do_GET(self) -> None:
        self.server.headers_of_calls.append(dict(self.headers))
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"[]")

    def log_message(self, *_) -> None:
        pass
