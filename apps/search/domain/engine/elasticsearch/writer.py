"""Write the logs of jobs into the indexes of their months."""

from collections.abc import Iterator, Mapping, Sequence
from hashlib import blake2b
from typing import Any

from django.db import connection as database

from apps.archive.sinks.base import SinkUnavailable
from apps.archive.sinks.elasticsearch.bulk import Bulk, BulkRejected, Operation
from apps.archive.sinks.elasticsearch.connection import timed_out
from apps.archive.sinks.elasticsearch.documents import as_json
from apps.search.domain.engine.elasticsearch.target import (
    MAPPINGS,
    Target,
    alias_for_writing,
    microseconds_of,
    month_of,
)
from apps.search.domain.logs.index_state import add_months
from apps.search.domain.logs.kept_texts import KeptLog
from apps.search.domain.logs.words import words_of_log
from apps.search.models import LogIndex

_EXISTS = "resource_already_exists_exception"


class IndexWriter:
    """Writes documents whose ID is the primary key of the job, so that a rewrite replaces it."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._bulk = Bulk(self._send)

    def write(self, index: LogIndex, logs: Sequence[KeptLog]) -> dict[int, str]:
        """Replace what an index has of these logs; return why logs were refused, by job.

        Raises `SinkUnavailable` and `BulkRejected`.
        """
        self._add_months(index, {month_of(log.ended_at) for log in logs if log.texts})
        refused = self._bulk.write(list(self._operations(index, logs)))
        return {logs[position].job_pk: reason for position, reason in refused.items()}

    def _add_months(self, index: LogIndex, months: set[str]) -> None:
        new = sorted(months - set(index.months))
        if not new:
            return
        client = self._target.connection.client()
        for month in new:
            name = self._target.index_of(index.generation, month)
            aliases: dict[str, dict[str, Any]] = {alias_for_writing(name): {}}
            try:
                with self._target.connection.translated():
                    client.indices.create(
                        index=name,
                        settings={"index": self._target.settings()},
                        mappings=MAPPINGS,
                        aliases=aliases,
                    )
            except BulkRejected as refusal:
                if refusal.error.get("type") != _EXISTS:
                    raise
        if not add_months(index, new):
            raise SinkUnavailable("the index was replaced meanwhile")

    def _operations(self, index: LogIndex, logs: Sequence[KeptLog]) -> Iterator[Operation]:
        """Yield what to delete and what to index, each with its position in `logs`."""
        version = _version()
        elsewhere = self._places_of(index, [log.job_pk for log in logs])
        for position, log in enumerate(logs):
            places = elsewhere.get(log.job_pk, set())
            if month_of(log.ended_at) in index.months:
                own_place = self._target.index_of(index.generation, month_of(log.ended_at))
                if log.texts:
                    places.discard(own_place)
                    action = {"index": _action(own_place, log.job_pk, version)}
                    lines = as_json(action) + b"\n" + as_json(document_of(log)) + b"\n"
                    yield Operation(position, lines)
                else:
                    places.add(own_place)
            for place in sorted(places):
                action = {"delete": _action(place, log.job_pk, version)}
                yield Operation(position, as_json(action) + b"\n")

    def _places_of(self, index: LogIndex, job_pks: Sequence[int]) -> dict[int, set[str]]:
        """Return the indexes that have documents of these jobs: one whose end was corrected moves.

        A document of the last second may be overlooked. It is never found, since its time is not
        the end of its job.
        """
        places: dict[int, set[str]] = {}
        if not index.months:
            return places
        fields: list[Any] = ["job"]
        with self._target.connection.translated():
            answer = self._target.connection.client().search(
                index=self._target.indexes_of(index.generation, index.months),
                query={"terms": {"job": list(job_pks)}},
                size=min(10_000, len(job_pks) * len(index.months)),
                docvalue_fields=fields,
                allow_partial_search_results=False,
                filter_path="hits.hits._index,hits.hits.fields",
            )
        for hit in answer.get("hits", {}).get("hits", ()):
            (job_pk,) = hit["fields"]["job"]
            places.setdefault(job_pk, set()).add(hit["_index"])
        return places

    def _send(self, lines: bytes) -> Mapping[str, Any]:
        try:
            return self._target.connection.send_bulk(lines, require_alias=True)
        except SinkUnavailable as error:
            if timed_out(error):
                self._bulk.send_less()
            raise


def document_of(log: KeptLog) -> dict[str, Any]:
    """Return the document of the logs of a job."""
    log_words = sorted(words_of_log(log.data))
    digest = blake2b("\n".join(log_words).encode(), digest_size=8).hexdigest()
    return {
        "words": log_words,
        "ended_at": microseconds_of(log.ended_at),
        "job": log.job_pk,
        "experiment": log.experiment_id or 0,
        "digest": digest,
    }


def _action(index: str, job_pk: int, version: int) -> dict[str, Any]:
    return {
        "_index": alias_for_writing(index),
        "_id": str(job_pk),
        "version": version,
        "version_type": "external_gte",
    }


def _version() -> int:
    """Return a number that is greater with each write.

    A request that timed out may be done later, after the one that repeats it. By the clock of the
    database, which all workers share, it then changes nothing.
    """
    with database.cursor() as cursor:
        cursor.execute("SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint")
        return int(cursor.fetchone()[0])
