"""Known sinks, by URL scheme."""

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


def open_sink(text: str) -> Sink:
    """Return the sink of a URL. Raises `BadSink`."""
    url = SinkURL.parse(text)
    try:
        return SINKS.get(url.scheme).from_url(url)
    except UnknownPlugin as error:
        raise BadSink(str(error)) from error
