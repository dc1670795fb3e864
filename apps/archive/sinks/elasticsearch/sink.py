"""The sink for `elasticsearch://HOST:9200[,HOST2:9200]/INDEX` and `elasticsearch+https://…`.

It uses the official client.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Self

from apps.archive.sinks.base import SinkUnavailable, SinkURL
from apps.archive.sinks.elasticsearch.bulk import Bulk, BulkRejected, Operation
from apps.archive.sinks.elasticsearch.connection import ElasticsearchConnection, timed_out
from apps.archive.sinks.elasticsearch.documents import as_json, document, document_id
from apps.archive.sinks.elasticsearch.index import Index
from capture.wire.batches import microseconds
from capture.wire.entry import CapturedJob


class ElasticsearchSink:
    """Writes a job as one document, whose ID follows from the job's key: a rewrite replaces it."""

    wants_described = True

    def __init__(self, *, connection: ElasticsearchConnection, index: Index) -> None:
        self._connection = connection
        self._index = index
        self._bulk = Bulk(self._send)
        self._ready = False
        self.name = f"{connection.name}/{index.name}"

    @classmethod
    def from_url(cls, url: SinkURL) -> Self:
        return cls(connection=ElasticsearchConnection.from_url(url), index=Index.from_url(url))

    def write(self, jobs: Sequence[CapturedJob]) -> Mapping[int, str]:
        """Index jobs. Acknowledged jobs are on disk in all available copies of the shard."""
        refused: dict[int, str] = {}
        operations = list(self._operations(jobs, refused))
        if not operations:
            return refused
        try:
            if not self._ready:
                self._set_up()
            return refused | self._bulk.write(operations)
        except SinkUnavailable:
            self._ready = False  # the server may have changed when it is available again
            raise

    def close(self) -> None:
        self._connection.close()

    def _operations(
        self, jobs: Sequence[CapturedJob], refused: dict[int, str]
    ) -> Iterator[Operation]:
        for position, job in enumerate(jobs):
            try:
                index: dict[str, Any] = {
                    "_index": self._index.of(job.submitted_at),
                    "_id": document_id(job),
                }
            except ValueError as error:
                refused[position] = str(error)
            else:
                index |= {"version": _version(job), "version_type": "external_gte"}
                yield Operation(
                    position, b"%s\n%s\n" % (as_json({"index": index}), as_json(document(job)))
                )

    def _set_up(self) -> None:
        """Create or update policy and template, and read the maximum size of a request."""
        client = self._connection.client()
        try:
            if self._index.setup:
                if policy := self._index.policy():
                    with self._connection.translated():
                        client.ilm.put_lifecycle(name=self._index.template_name, policy=policy)
                with self._connection.translated():
                    client.indices.put_index_template(
                        name=self._index.template_name, **self._index.template()
                    )
        except BulkRejected as refusal:
            raise SinkUnavailable(f"the index cannot be set up: {refusal}") from refusal
        self._bulk.limit_bytes = self._connection.largest_request_bytes()
        self._ready = True

    def _send(self, lines: bytes) -> Mapping[str, Any]:
        try:
            return self._connection.send_bulk(lines)
        except SinkUnavailable as error:
            if timed_out(error):
                self._bulk.send_less()
            raise


def _version(job: CapturedJob) -> int:
    """Return a version by which the last captured copy wins.

    Of two equal copies, the one with a user wins. The order in which workers write the copies does
    not matter.
    """
    return max(0, 2 * microseconds(job.captured_at)) + bool(job.user)
