"""The sink for `elasticsearch://HOST:9200[,HOST2:9200]/INDEX` and `elasticsearch+https://…`.

It uses the official client.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Self

from django.conf import settings

from apps.archive.sinks.base import BadSink, SinkUnavailable, SinkURL
from apps.archive.sinks.elasticsearch.bulk import DEFAULT_LIMIT_BYTES, Bulk, Operation, Refusal
from apps.archive.sinks.elasticsearch.documents import as_json, document, document_id
from apps.archive.sinks.elasticsearch.index import Index
from capture.wire.batches import microseconds
from capture.wire.entry import CapturedJob

if TYPE_CHECKING:
    from elasticsearch import Elasticsearch

REQUEST_SECONDS = 10.0  # a hanging server holds a worker this long
_PORT = "9200"
# Fields of a bulk response that are needed; the others would be as long as the request.
_ANSWER = "errors,items.index.status,items.index.error"
_ADDRESS_OF_AN_OBJECT = re.compile(r"<[^<>]* at 0x[0-9a-f]+>: ")


class ElasticsearchSink:
    """Writes a job as one document, whose ID follows from the job's key: a rewrite replaces it."""

    wants_described = True

    def __init__(
        self, *, scheme: str, hosts: Sequence[str], index: Index, credentials: Mapping[str, Any]
    ) -> None:
        self._http = "https" if scheme.endswith("+https") else "http"
        self._hosts = [host if re.search(r":\d+$", host) else f"{host}:{_PORT}" for host in hosts]
        self._index = index
        self._credentials = credentials
        self._bulk = Bulk(self._send)
        self._opened: Elasticsearch | None = None
        self._ready = False
        self.name = f"{scheme}://{','.join(self._hosts)}/{index.name}"

    @classmethod
    def from_url(cls, url: SinkURL) -> Self:
        if not url.hosts:
            raise BadSink(
                f"the URL of the {url.scheme} sink names no host: {url.scheme}://HOST:9200/INDEX"
            )
        credentials = _credentials()
        if not url.scheme.endswith("+https") and credentials:
            raise BadSink(
                "ARCHIVE_ELASTICSEARCH_… settings are for elasticsearch+https: nothing is "
                "sent in the clear"
            )
        return cls(
            scheme=url.scheme, hosts=url.hosts, index=Index.from_url(url), credentials=credentials
        )

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
        if self._opened is not None:
            self._opened.close()
            self._opened = None

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

    def _client(self) -> "Elasticsearch":
        if self._opened is None:
            from elasticsearch import Elasticsearch  # the import takes a second

            self._opened = Elasticsearch(
                [f"{self._http}://{host}" for host in self._hosts],
                request_timeout=REQUEST_SECONDS,
                # Another host each time; the caller waits between attempts.
                max_retries=len(self._hosts) - 1,
                retry_on_status=(),
                **self._credentials,
            )
        return self._opened

    def _set_up(self) -> None:
        """Create or update policy and template, and read the maximum size of a request."""
        client = self._client()
        try:
            if self._index.setup:
                if policy := self._index.policy():
                    with self._translated():
                        client.ilm.put_lifecycle(name=self._index.template_name, policy=policy)
                with self._translated():
                    client.indices.put_index_template(
                        name=self._index.template_name, **self._index.template()
                    )
        except Refusal as refusal:
            raise SinkUnavailable(f"the index cannot be set up: {refusal}") from refusal
        try:
            with self._translated():
                nodes = client.nodes.info(
                    metric="http", filter_path="nodes.*.http.max_content_length_in_bytes"
                )
                limits = [
                    node["http"]["max_content_length_in_bytes"]
                    for node in nodes.get("nodes", {}).values()
                ]
        except Refusal:  # the account may write, but not read this
            limits = []
        self._bulk.limit_bytes = min([DEFAULT_LIMIT_BYTES, *limits])
        self._ready = True

    def _send(self, lines: bytes) -> Mapping[str, Any]:
        from elasticsearch import ConnectionTimeout

        operations: Any = [lines]  # the client sends bytes unchanged
        try:
            with self._translated():
                return dict(self._client().bulk(operations=operations, filter_path=_ANSWER))
        except SinkUnavailable as error:
            if isinstance(error.__cause__, ConnectionTimeout):
                self._bulk.send_less()
            raise

    @contextmanager
    def _translated(self) -> Iterator[None]:
        """Translate the client's errors.

        Raise `Refusal` for an error from the server, and `SinkUnavailable` if no Elasticsearch
        server answered.
        """
        from elasticsearch import ApiError, TransportError, UnsupportedProductError

        try:
            yield
        except UnsupportedProductError as error:
            raise SinkUnavailable(
                f"the server at {', '.join(self._hosts)} is not Elasticsearch"
            ) from error
        except ApiError as error:
            reported = error.body.get("error", {}) if isinstance(error.body, dict) else {}
            details = reported if isinstance(reported, dict) else {"reason": reported}
            raise Refusal(
                error.meta.status, {"type": f"status {error.meta.status}", **details}
            ) from error
        except TransportError as error:
            reason = _ADDRESS_OF_AN_OBJECT.sub("", str(error.message))  # differs each time
            raise SinkUnavailable(f"{', '.join(self._hosts)}: {reason}") from error


def _version(job: CapturedJob) -> int:
    """Return a version by which the last captured copy wins.

    Of two equal copies, the one with a user wins. The order in which workers write the copies does
    not matter.
    """
    return max(0, 2 * microseconds(job.captured_at)) + bool(job.user)


def _credentials() -> dict[str, Any]:
    """Return the client's options for authentication and trust. Raises `BadSink`."""
    key, ca = settings.ARCHIVE_ELASTICSEARCH_API_KEY, settings.ARCHIVE_ELASTICSEARCH_CA
    user, password = settings.ARCHIVE_ELASTICSEARCH_USER, settings.ARCHIVE_ELASTICSEARCH_PASSWORD
    if key and user:
        raise BadSink(
            "ARCHIVE_ELASTICSEARCH_API_KEY and ARCHIVE_ELASTICSEARCH_USER are both set: give "
            "one of them"
        )
    if bool(user) != bool(password):
        raise BadSink(
            "ARCHIVE_ELASTICSEARCH_USER and ARCHIVE_ELASTICSEARCH_PASSWORD belong together"
        )
    if ca and not ca.is_file():
        raise BadSink(f"ARCHIVE_ELASTICSEARCH_CA: {ca} is not a file")
    options = {
        "api_key": key,
        "basic_auth": (user, password) if user else None,
        "ca_certs": str(ca) if ca else None,
    }
    return {name: value for name, value in options.items() if value}
