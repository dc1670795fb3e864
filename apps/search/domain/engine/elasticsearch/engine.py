"""The engine for `elasticsearch://HOST:9200[,HOST2:9200]/PREFIX` and `elasticsearch+https://…`."""

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from apps.archive.sinks.base import BadSink, SinkUnavailable
from apps.archive.sinks.elasticsearch.bulk import BulkRejected
from apps.jobs.domain.records.calendar_months import dropped_months
from apps.search.domain.engine.base import (
    READ_SECONDS,
    Cursor,
    Hits,
    SearchScope,
    SearchUnavailable,
)
from apps.search.domain.engine.candidate_checks import search_candidates
from apps.search.domain.engine.elasticsearch.log_candidates import newest_logs
from apps.search.domain.engine.elasticsearch.target import LAYOUT, Target
from apps.search.domain.engine.elasticsearch.writer import IndexWriter, document_of
from apps.search.domain.engine.places import HitCandidate
from apps.search.domain.logs.index_state import (
    first_index,
    indexes_of,
    remove_months,
    serving_index,
)
from apps.search.domain.logs.kept_texts import KeptLog
from apps.search.domain.query.clauses import Query
from apps.search.models import LogIndex

log = logging.getLogger(__name__)

_SHOWN_FIELDS = ("job", "ended_at", "experiment", "digest")


class ElasticsearchEngine:
    """Documents of words in Elasticsearch, which say where to look; the texts decide."""

    layout = LAYOUT
    has_experiments = True

    def __init__(self, target: Target) -> None:
        self._target = target
        self._writer = IndexWriter(target)
        self.name = target.name

    @classmethod
    def from_url(cls, text: str) -> "ElasticsearchEngine":
        """Return the engine of a SEARCH_URL, without connecting. Raises `SearchUnavailable`."""
        try:
            return cls(Target.from_url(text))
        except BadSink as error:
            raise SearchUnavailable(f"SEARCH_URL: {error}") from None

    def store(self, logs: Sequence[KeptLog], *, only: LogIndex | None = None) -> Mapping[int, str]:
        """Replace the documents of these jobs, in all indexes; acknowledged ones are on disk."""
        refused: dict[int, str] = {}
        if not logs:
            return refused
        first_index(self.name, layout=self.layout)
        indexes = indexes_of(self.name) if only is None else [only]
        with _unavailable():
            for index in indexes:
                refused |= self._writer.write(index, logs)
        return refused

    def forget(self, job_pks: Iterable[int]) -> set[int]:
        """Leave it to a worker: a transaction of the database waits for no other server."""
        return set(job_pks)

    def search(
        self,
        query: Query,
        scope: SearchScope,
        *,
        after: Cursor | None = None,
        size: int,
        seconds: float = READ_SECONDS,
    ) -> Hits:
        """Return the newest hits after a cursor, verified on the texts.

        Raises `SearchRefused` and `SearchUnavailable`.
        """
        try:
            logs = self._logs(query, scope, after)
            return search_candidates(query, scope, logs, after=after, size=size, seconds=seconds)
        except SearchUnavailable as error:
            log.warning("search index %s: %s", self.name, error.reason)
            raise

    def _logs(
        self, query: Query, scope: SearchScope, after: Cursor | None
    ) -> Iterator[HitCandidate]:
        # Not before the first log is asked for: scripts need no server.
        index = serving_index(self.name)
        if index is not None:
            yield from newest_logs(self._target, index, query, scope, after)

    def check(self) -> None:
        """Check that each month of the index that searches use exists."""
        index = serving_index(self.name)
        if index is None or not index.months:
            return
        with _unavailable():
            self._search(index, index.months, query={"match_none": {}}, size=0)

    def differences(self, logs: Sequence[KeptLog]) -> Mapping[int, str]:
        """Return what is wrong in the index of these logs, by job."""
        stored = self._stored_documents([log.job_pk for log in logs])
        wrong = {}
        for log in logs:
            document = document_of(log)
            expected = {name: document[name] for name in _SHOWN_FIELDS}
            documents = stored.get(log.job_pk, [])
            if not documents:
                wrong[log.job_pk] = "is missing"
            elif len(documents) > 1:
                wrong[log.job_pk] = "is there more than once"
            elif documents[0] != expected:
                wrong[log.job_pk] = "has other words, another time or another experiment"
        return wrong

    def _stored_documents(self, job_pks: Sequence[int]) -> dict[int, list[dict[str, Any]]]:
        """Return the `_SHOWN_FIELDS` of the documents of these jobs, by job."""
        documents: dict[int, list[dict[str, Any]]] = {}
        index = serving_index(self.name)
        if index is None or not index.months:
            return documents
        with _unavailable():
            hits = self._search(
                index,
                index.months,
                query={"terms": {"job": list(job_pks)}},
                size=10_000,
                docvalue_fields=list(_SHOWN_FIELDS),
            )
        for hit in hits:
            document = {name: values[0] for name, values in hit["fields"].items()}
            documents.setdefault(document["job"], []).append(document)
        return documents

    def jobs_after(self, job_pk: int, most: int) -> list[int]:
        """Return the next jobs in the index that searches use, by primary key."""
        index = serving_index(self.name)
        if index is None or not index.months:
            return []
        with _unavailable():
            hits = self._search(
                index,
                index.months,
                query={"range": {"job": {"gt": job_pk}}},
                sort=[{"job": "asc"}],
                size=most,
            )
        return [hit["sort"][0] for hit in hits]

    def _search(
        self, index: LogIndex, months: Sequence[str], **request: Any
    ) -> list[dict[str, Any]]:
        """Return the hits of a request; raise unless all parts of the index answer."""
        with self._target.connection.translated():
            answer = self._target.connection.client().search(
                index=self._target.indexes_of(index.generation, months),
                allow_partial_search_results=False,
                track_total_hits=False,
                **request,
            )
        hits: list[dict[str, Any]] = answer["hits"]["hits"]
        return hits

    def finish(self, index: LogIndex) -> None:
        """Let searches see all that was written."""
        if not index.months:
            return
        with _unavailable(), self._target.connection.translated():
            self._target.connection.client().indices.refresh(
                index=self._target.indexes_of(index.generation, index.months)
            )

    def clean_up(self) -> None:
        """Delete what was replaced, and months whose job records are no longer kept."""
        indexes = indexes_of(self.name)
        if not indexes:
            return
        dropped = {f"{month:%Y.%m}" for month in dropped_months()}
        for index in indexes:
            if gone := dropped & set(index.months):
                # First here, so that no search asks for them any more.
                remove_months(index, gone)
        oldest = min(index.generation for index in indexes)
        client = self._target.connection.client()
        with _unavailable(), self._target.connection.translated():
            answer = client.indices.get_alias(index=self._target.all_indexes())
            for name in sorted(answer.body):
                part = self._target.part_of(name)
                if part and (part[0] < oldest or part[1] in dropped):
                    client.indices.delete(index=name)


@contextmanager
def _unavailable() -> Iterator[None]:
    """Raise `SearchUnavailable` for whatever keeps the server from its work."""
    try:
        yield
    except (SinkUnavailable, BulkRejected) as error:
        reason = str(error)
        raise SearchUnavailable(f"The index of logs does not answer: {reason}") from error
