"""The engine of this portal: Elasticsearch where SEARCH_URL is set, else PostgreSQL."""

from functools import lru_cache

from django.conf import settings

from apps.search.domain.engine.base import Engine
from apps.search.domain.engine.elasticsearch.engine import ElasticsearchEngine
from apps.search.domain.engine.postgresql import PostgresEngine

_POSTGRESQL = PostgresEngine()


def engine_in_use() -> Engine:
    """Return the engine that the settings name. Raises `SearchUnavailable` for a bad URL."""
    if not settings.SEARCH_URL:
        return _POSTGRESQL
    return _elasticsearch(settings.SEARCH_URL)


@lru_cache(maxsize=4)
def _elasticsearch(url: str) -> ElasticsearchEngine:
    # One for all threads of a process, which share its connections.
    return ElasticsearchEngine.from_url(url)
