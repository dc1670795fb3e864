"""Requests to other servers, which are treated as hostile.

A request goes only to a server that the caller's rule allows, ends in bounded time and memory
whatever the server sends, and raises only `HttpError`. Redirects are not followed, proxies are not
used, and nothing is decompressed.
"""

import ssl
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from http.client import HTTPException, IncompleteRead
from typing import Any
from urllib.parse import SplitResult, urlsplit

from urllib3 import BaseHTTPResponse
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.exceptions import ConnectTimeoutError, HTTPError, NewConnectionError

from apps.core.http.addresses import AddressRule
from apps.core.http.deadline import Deadline
from apps.core.http.errors import (
    AddressRefused,
    Compressed,
    ConnectionFailed,
    CutShort,
    ResponseTooLarge,
    TimedOut,
)

#: Maximum addresses of a host that are tried; each but the last gets a third of the time.
_MAX_ADDRESSES = 3
_BLOCK_BYTES = 64 * 1024

StatusSetter = Callable[[int], None]


@dataclass(frozen=True)
class TransferLimits:
    """Limits of a request.

    Seconds for the connection to an address, for each read, and in total; bytes of the response
    body.
    """

    connect: float
    read: float
    total: float
    most_bytes: int


@dataclass(frozen=True)
class TLSFiles:
    """Paths of PEM files for TLS; an empty path is not used.

    `certificate` and `key` identify the portal to the server. `authorities` replaces the
    certificate authorities of the system.
    """

    certificate: str = ""
    key: str = ""
    authorities: str = ""

    def context(self) -> ssl.SSLContext:
        """Return a context that checks the server's certificate. Raises `OSError`."""
        context = ssl.create_default_context(cafile=self.authorities or None)
        if self.certificate:
            # With an empty password, an encrypted key fails and does not ask at the terminal.
            context.load_cert_chain(self.certificate, self.key or None, password="")
        return context


class HttpAnswer:
    """A response of any status. Its body is read on demand and unchanged."""

    def __init__(self, response: BaseHTTPResponse, most_bytes: int, deadline: Deadline) -> None:
        self.status = response.status
        self.reason = response.reason or ""
        self.headers: Mapping[str, str] = response.headers
        self._response = response
        self._most_bytes = most_bytes
        self._deadline = deadline

    def body(self) -> bytes:
        """Return the whole body. Raises `HttpError`."""
        return b"".join(self.blocks())

    def blocks(self) -> Iterator[bytes]:
        """Yield the whole body in blocks of 64 KB.

        Raises `Compressed`, `ResponseTooLarge`, `CutShort`, or another `HttpError`.
        """
        encoding = self.headers.get("Content-Encoding", "identity")
        if encoding != "identity":
            raise Compressed(encoding)

        bytes_left = self._most_bytes
        while block := self._read(min(_BLOCK_BYTES, bytes_left + 1)):
            bytes_left -= len(block)
            if bytes_left < 0:
                raise ResponseTooLarge(self._most_bytes)
            yield block

    def _read(self, size: int) -> bytes:
        with _http_errors(self._deadline):
            return self._response.read(size, decode_content=False)


@contextmanager
def _untraced(_method: str, _url: SplitResult, _headers: dict[str, str]) -> Iterator[StatusSetter]:
    yield lambda _status: None


RequestTracer = Callable[[str, SplitResult, dict[str, str]], AbstractContextManager[StatusSetter]]
#: Surrounds each request, and is told the status of its response. `opsportal.tracing` replaces it.
trace_request: RequestTracer = _untraced


@contextmanager
def send(
    method: str,
    url: str,
    *,
    rule: AddressRule,
    limits: TransferLimits,
    headers: Mapping[str, str] | None = None,
    body: bytes | None = None,
    tls: TLSFiles | None = None,
) -> Iterator[HttpAnswer]:
    """Send a request and yield the response, valid within the block. Raises `HttpError`."""
    with Deadline(limits.total) as deadline, ExitStack() as stack:
        with _http_errors(deadline):
            parts = urlsplit(url)
            rule.check(parts)
            all_headers = {
                "Host": parts.netloc.rpartition("@")[2],
                "User-Agent": "opsportal",
                **(headers or {}),
            }
            set_status = stack.enter_context(trace_request(method, parts, all_headers))
            connection = stack.enter_context(
                closing(_connect(parts, rule, limits, deadline, tls or TLSFiles()))
            )

            target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
            connection.request(
                method, target, body, all_headers, preload_content=False, decode_content=False
            )
            response = stack.enter_context(closing(connection.getresponse()))
            set_status(response.status)

        yield HttpAnswer(response, limits.most_bytes, deadline)


def _connect(
    url: SplitResult, rule: AddressRule, limits: TransferLimits, deadline: Deadline, tls: TLSFiles
) -> HTTPConnection:
    """Connect to the first address that accepts a connection.

    With TLS, the certificate must be valid for the host in the URL.
    """
    connection_class: type[HTTPConnection]
    options: dict[str, Any]
    if url.scheme == "https":
        connection_class = deadline.watched(HTTPSConnection)
        options = {"server_hostname": url.hostname, "ssl_context": tls.context()}
    elif url.scheme == "http":
        connection_class = deadline.watched(HTTPConnection)
        options = {}
    else:
        raise AddressRefused(f"{url.scheme}://{url.hostname}")

    def connect_to(address: str, seconds: float) -> HTTPConnection:
        port = url.port or connection_class.default_port
        connection = connection_class(address, port, timeout=seconds, **options)
        try:
            connection.connect()
        except BaseException:
            connection.close()
            raise
        connection.timeout = limits.read
        return connection

    *others, last = rule.resolve(url)[:_MAX_ADDRESSES]
    for address in others:
        with suppress(NewConnectionError, ConnectTimeoutError):
            return connect_to(address, limits.connect / _MAX_ADDRESSES)
    return connect_to(last, limits.connect)


@contextmanager
def _http_errors(deadline: Deadline) -> Iterator[None]:
    """Convert errors of sockets, TLS and urllib3 to `HttpError`.

    Raises `TimedOut` if the connection was cut. Without this check, a response without a length
    would look complete when its connection is cut.
    """
    try:
        yield
    except (OSError, HTTPException, ValueError, HTTPError) as error:
        if not deadline.is_over:
            raise _http_error(error) from None
    if deadline.is_over:
        raise TimedOut(TimeoutError("not complete in time"))


def _http_error(error: Exception) -> ConnectionFailed:
    """Return the error for one of urllib3, which may wrap an error of a socket, TLS or HTTP."""
    while isinstance(error, HTTPError) and isinstance(error.__cause__, Exception):
        error = error.__cause__
    if isinstance(error, TimeoutError):
        return TimedOut(error)
    if isinstance(error, IncompleteRead):
        return CutShort(error)
    return ConnectionFailed(error)
