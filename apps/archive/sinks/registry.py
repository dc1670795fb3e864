"""Known sinks, by URL scheme."""

from collections.abc import Iterable

from apps.archive.sinks.base import BadSink, Sink, SinkURL
from apps.core.domain.plugins import Registry, UnknownPlugin

SINKS: Registry[type[Sink]] = Registry(
    group="opsportal.archive_sinks",
    builtins={
        "elasticsearch": "apps.archive.sinks.elasticsearch.sink:ElasticsearchSink",
        "elasticsearch+https": "apps.archive.sinks.elasticsearch.sink:ElasticsearchSink",
        "files": "apps.archive.sinks.files:FilesSink",
        "kafka": "apps.archive.sinks.kafka.sink:KafkaSink",
        "store": "apps.archive.sinks.store:StoreSink",
    },
)


def open_sinks(texts: Iterable[str]) -> list[Sink]:
    """Return the sinks of some URLs.

    Raises `BadSink`, also if two URLs are the same place, which would get each job twice.
    """
    sinks: dict[str, Sink] = {}
    for text in texts:
        sink = open_sink(text)
        if sink.name in sinks:
            raise BadSink(f"the sink {sink.name} is given twice")
        sinks[sink.name] = sink
    return [*sinks.values()]


def open_sink(text: str) -> Sink:
    """Return the sink of a URL. Raises `BadSink`."""
    url = SinkURL.parse(text)
    try:
        return SINKS.get(url.scheme).from_url(url)
    except UnknownPlugin as error:
        raise BadSink(str(error)) from error
