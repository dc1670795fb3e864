"""The official client of Elasticsearch: where it connects to, as whom, and what its errors mean."""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from django.conf import settings

from apps.archive.sinks.base import BadSink, SinkUnavailable, SinkURL
from apps.archive.sinks.elasticsearch.bulk import DEFAULT_LIMIT_BYTES, BulkRejected

if TYPE_CHECKING:
    from elasticsearch import Elasticsearch

REQUEST_SECONDS = 10.0  # a hanging server holds a worker this long
_PORT = "9200"
# Fields of a bulk response that are needed; the others would be as long as the request.
_ANSWER = "errors,items.*.status,items.*.error"
_ADDRESS_OF_AN_OBJECT = re.compile(r"<[^<>]* at 0x[0-9a-f]+>: ")


class ElasticsearchConnection:
    """A connection to the nodes of one cluster, opened when it is first used."""

    def __init__(
        self, *, scheme: str, hosts: Sequence[str], credentials: Mapping[str, Any]
    ) -> None:
        self._http = "https" if scheme.endswith("+https") else "http"
        self._hosts = [host if re.search(r":\d+$", host) else f"{host}:{_PORT}" for host in hosts]
        self._credentials = credentials
        self._opened: Elasticsearch | None = None
        self.hosts = ",".join(self._hosts)
        self.name = f"{scheme}://{self.hosts}"

    @classmethod
    def from_url(cls, url: SinkURL) -> "ElasticsearchConnection":
        """Return the connection to the hosts of a URL, with the credentials of the settings.

        Raises `BadSink`.
        """
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
        return cls(scheme=url.scheme, hosts=url.hosts, credentials=credentials)

    def client(self) -> "Elasticsearch":
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

    def close(self) -> None:
        if self._opened is not None:
            self._opened.close()
            self._opened = None

    def send_bulk(self, lines: bytes, **options: Any) -> Mapping[str, Any]:
        """Send the lines of a bulk request; return the status of each item, and its error.

        Raises `BulkRejected` and `SinkUnavailable`.
        """
        operations: Any = [lines]  # the client sends bytes unchanged
        with self.translated():
            return dict(self.client().bulk(operations=operations, filter_path=_ANSWER, **options))

    def largest_request_bytes(self) -> int:
        """Return the size of a request that all nodes take; at most the usual one."""
        try:
            with self.translated():
                nodes = self.client().nodes.info(
                    metric="http", filter_path="nodes.*.http.max_content_length_in_bytes"
                )
                limits: list[int] = [
                    node["http"]["max_content_length_in_bytes"]
                    for node in nodes.get("nodes", {}).values()
                ]
        except BulkRejected:  # the account may write, but not read this
            limits = []
        return min([DEFAULT_LIMIT_BYTES, *limits])

    @contextmanager
    def translated(self) -> Iterator[None]:
        """Translate the client's errors.

        Raise `BulkRejected` for an error from the server, and `SinkUnavailable` if no Elasticsearch
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
            raise BulkRejected(
                error.meta.status, {"type": f"status {error.meta.status}", **details}
            ) from error
        except TransportError as error:
            reason = _ADDRESS_OF_AN_OBJECT.sub("", str(error.message))  # differs each time
            raise SinkUnavailable(f"{', '.join(self._hosts)}: {reason}") from error


def timed_out(error: SinkUnavailable) -> bool:
    """Return whether the server did not answer in time, so that it may have done the work."""
    from elasticsearch import ConnectionTimeout

    return isinstance(error.__cause__, ConnectionTimeout)


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
