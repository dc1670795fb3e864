"""The engine in Elasticsearch as tests use it: what is stored is found at once."""

from collections.abc import Mapping, Sequence

from apps.search.domain.engine.elasticsearch.engine import ElasticsearchEngine
from apps.search.domain.logs.index_state import indexes_of
from apps.search.domain.logs.kept_texts import KeptLog
from apps.search.models import LogIndex


class RefreshedEngine(ElasticsearchEngine):
    """Refreshes the indexes after each write, which a server does about once a second."""

    def store(self, logs: Sequence[KeptLog], *, only: LogIndex | None = None) -> Mapping[int, str]:
        refused = super().store(logs, only=only)
        for index in indexes_of(self.name) if only is None else [only]:
            self.finish(index)
        return refused
