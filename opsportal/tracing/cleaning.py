"""What of a span leaves the portal: names, numbers and routes, no values.

The libraries of OpenTelemetry also note addresses of clients, URLs, user names and messages of
errors. Paths and queries hold tokens, and a message of PostgreSQL holds rows.
"""

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import SpanKind, Status

#: The request's ID, as lines of the log have it.
REQUEST_ID = "opsportal.request_id"
#: What is kept: a new version of a library may add others, which nobody has looked at.
KEPT = frozenset(
    {
        REQUEST_ID,
        "celery.state",
        "db.namespace",
        "db.operation",
        "db.system",
        "db.system.name",
        "error.type",
        "http.request.method",
        "http.response.status_code",
        "http.route",
        "messaging.destination.name",
        "messaging.message.id",
        "messaging.operation.type",
        "messaging.system",
        "network.protocol.version",
        "server.address",
        "server.port",
        "url.scheme",
    }
)
#: Characters of a statement. Generated ones can be a hundred times as long.
MOST_CHARACTERS = 4_000
#: Strings in SQL: with escapes, plain, and between dollars.
_LITERALS = re.compile(r"\b[eE]'(?:[^'\\]|\\.|'')*'|'(?:[^']|'')*'|\$(\w*)\$.*?\$\1\$", re.DOTALL)


def clean(span: ReadableSpan) -> ReadableSpan:
    """Return a span with the attributes that may be kept, without events and messages."""
    return ReadableSpan(
        name=span.name,
        context=span.context,
        parent=span.parent,
        resource=span.resource,
        attributes=_clean_attributes(span),
        kind=span.kind,
        status=Status(span.status.status_code),
        start_time=span.start_time,
        end_time=span.end_time,
        instrumentation_scope=span.instrumentation_scope,
    )


def _clean_attributes(span: ReadableSpan) -> dict[str, Any]:
    attributes: Mapping[str, Any] = span.attributes or {}
    kept = {name: value for name, value in attributes.items() if name in KEPT}
    if statement := attributes.get("db.query.text"):
        kept["db.query.text"] = mask_literals(str(statement))[:MOST_CHARACTERS]
    if span.kind is SpanKind.SERVER:
        # The client names the host.
        kept.pop("server.address", None)
        kept.pop("server.port", None)
    if url := attributes.get("url.full"):
        kept |= _server_of(str(url))
    for event in span.events:
        if event.name == "exception" and event.attributes:
            kept.setdefault("error.type", event.attributes.get("exception.type", "_OTHER"))
    return kept


def mask_literals(statement: str) -> str:
    """Return a statement of SQL with `?` for the strings in it; parameters are not in it."""
    return _LITERALS.sub("?", statement)


def _server_of(url: str) -> dict[str, Any]:
    """Return the attributes of the server that a URL names, without its path and query."""
    try:
        parts = urlsplit(url)
        attributes = {
            "url.scheme": parts.scheme,
            "server.address": parts.hostname,
            "server.port": parts.port,
        }
    except ValueError:
        return {}
    return {name: value for name, value in attributes.items() if value}
