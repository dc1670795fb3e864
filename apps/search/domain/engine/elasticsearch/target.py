"""Where the index of logs is, by SEARCH_URL, and how its parts are named and laid out."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Self

from apps.archive.sinks.base import BadSink, SinkURL
from apps.archive.sinks.elasticsearch.connection import ElasticsearchConnection
from apps.archive.sinks.elasticsearch.index import (
    CODECS,
    INDEX_NAME,
    choice_option,
    number_option,
    without_none,
)

SCHEMES = ("elasticsearch", "elasticsearch+https")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
#: Raised with a change of `MAPPINGS` or of what documents contain.
LAYOUT = 1
#: Nothing of a document can be read back but the fields with `doc_values`: the texts stay in
#: PostgreSQL. Words are found whole or by their start, since they are split by rules of our own.
MAPPINGS: dict[str, Any] = {
    "dynamic": False,
    "_source": {"enabled": False},
    "properties": {
        "words": {
            "type": "keyword",
            "doc_values": False,
            "norms": False,
            "index_options": "docs",
        },
        "ended_at": {"type": "long"},
        "job": {"type": "long"},
        "experiment": {"type": "long"},
        "digest": {"type": "keyword", "index": False},
    },
}
#: Newest first, as hits are: a search stops when its page is full.
ORDER = {"field": ["ended_at", "job"], "order": ["desc", "desc"]}


@dataclass(frozen=True, slots=True)
class Target:
    """A cluster and the prefix of the indexes in it, with the options for new ones."""

    connection: ElasticsearchConnection
    prefix: str
    shards: int | None = None
    replicas: int | None = None
    codec: str = ""

    @classmethod
    def from_url(cls, text: str) -> Self:
        """Return the target of a SEARCH_URL. Raises `BadSink`."""
        url = SinkURL.parse(text)
        if url.scheme not in SCHEMES:
            raise BadSink(f"the scheme is one of {', '.join(SCHEMES)}, not {url.scheme!r}")
        url.only("shards", "replicas", "codec")
        prefix = url.path.removeprefix("/")
        if not INDEX_NAME.fullmatch(prefix):
            raise BadSink(
                f"{prefix!r} is not a prefix of index names, such as opsportal: lower-case "
                "letters, digits, . _ and -"
            )
        return cls(
            ElasticsearchConnection.from_url(url),
            prefix,
            number_option(url, "shards", least=1),
            number_option(url, "replicas", least=0),
            choice_option(url, "codec", CODECS),
        )

    @property
    def name(self) -> str:
        return f"{self.connection.name}/{self.prefix}"

    def index_of(self, generation: int, month: str) -> str:
        return f"{self.prefix}-logs-g{generation}-{month}"

    def indexes_of(self, generation: int, months: Iterable[str]) -> list[str]:
        return [self.index_of(generation, month) for month in months]

    def all_indexes(self) -> str:
        return f"{self.prefix}-logs-g*"

    def part_of(self, index: str) -> tuple[int, str] | None:
        """Return generation and month of an index by its name; None if it is not one of ours."""
        start = f"{self.prefix}-logs-g"
        generation, _, month = index.removeprefix(start).partition("-")
        year, _, number = month.partition(".")
        numbers = [generation, year, number]
        if not index.startswith(start) or not all(map(str.isdecimal, numbers)):
            return None
        return int(generation), month

    def settings(self) -> dict[str, Any]:
        """Return the settings of a new index."""
        return without_none(
            {
                "number_of_shards": self.shards,
                "number_of_replicas": self.replicas,
                "codec": self.codec or None,
                "sort": ORDER,
            }
        )


def alias_for_writing(index: str) -> str:
    """Return the name by which an index is written to.

    Elasticsearch creates an index that is written to and missing, and then with any layout. It
    creates no alias: an index that was lost is an error, and not silently an empty one.
    """
    return f"{index}-write"


def microseconds_of(moment: datetime) -> int:
    """Return a time as documents have it: microseconds since 1970."""
    return (moment - _EPOCH) // timedelta(microseconds=1)


def moment_of(microseconds: int) -> datetime:
    return _EPOCH + timedelta(microseconds=microseconds)


def month_of(ended_at: datetime) -> str:
    return f"{ended_at.astimezone(UTC):%Y.%m}"
