"""The sinks there are, by the scheme of their URL."""

from apps.archive.sinks.base import BadSink, Sink, SinkURL
from apps.core.plugins import Registry, UnknownPlugin

SINKS: Registry[type[Sink]] = Registry(
    group="opsportal.archive_sinks",
    builtins={
        "files": "apps.archive.sinks.files:FilesSink",
        "store": "apps.archive.sinks.store:StoreSink",
    },
)


def open_sink(text: str) -> Sink:
    """Return the sink of a URL. Raises `BadSink`."""
    url = SinkURL.parse(text)
    try:
        return SINKS.get(url.scheme).from_url(url)
    except UnknownPlugin as error:
        raise BadSink(str(error)) from error
