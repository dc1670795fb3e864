"""Calls of the OpenID provider, limited in time, size and number, so that a slow provider does not stop the portal."""

import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import requests
from django.conf import settings
from requests.adapters import HTTPAdapter
from urllib3.exceptions import HTTPError

#: The largest answer of a provider.
MOST_BYTES = 1_000_000
#: Calls at a time in this process, of whose four threads the others go on to serve the portal.
MOST_CALLS = 2
#: How long a login waits while other logins call the provider, in seconds.
WAIT = 1.0

_free_calls = threading.BoundedSemaphore(MOST_CALLS)


class NoAnswer(Exception):
    """The provider is unavailable, or its answer is not OpenID Connect."""


class Denied(Exception):
    """The provider answered that the portal's call is not valid, as it does for a code that was used before."""


@dataclass(frozen=True)
class Answer:
    """An answer with status 200."""

    url: str
    content_type: str
    body: bytes

    def json(self) -> dict[str, Any]:
        """Return the object in the answer. Raises `NoAnswer`."""
        try:
            value = json.loads(self.body)
        except (ValueError, RecursionError) as error:
            raise NoAnswer(f"{self.url}: {error}") from error
        if not isinstance(value, dict):
            raise NoAnswer(f"{self.url}: the answer is not an object")
        return value


def call(method: str, url: str, **parameters: Any) -> Answer:
    """Call the provider; all of the answer arrives within `OIDC_TIMEOUT`. Raises `NoAnswer`, `Denied`.

    Redirects are not followed: a call has the portal's secret or a user's token.
    """
    if not _free_calls.acquire(timeout=WAIT):
        raise NoAnswer(f"{url}: {MOST_CALLS} other logins wait for the provider")
    limits: dict[str, Any] = {"timeout": settings.OIDC_TIMEOUT, "allow_redirects": False, "stream": True}
    end = time.monotonic() + settings.OIDC_TIMEOUT
    try:
        with _session() as session, session.request(method, url, **limits, **parameters) as response:
            body = response.raw.read(MOST_BYTES + 1)
    except (OSError, ValueError, HTTPError) as error:
        raise NoAnswer(f"{url}: {error}") from error
    finally:
        _free_calls.release()
    if time.monotonic() > end:
        raise NoAnswer(f"{url}: not all of the answer arrived within {settings.OIDC_TIMEOUT:g} s")
    if 400 <= response.status_code < 500:
        raise Denied(f"{url}: status {response.status_code}, {body[:200].decode(errors='replace')}")
    if response.status_code != 200:
        raise NoAnswer(f"{url}: status {response.status_code}")
    if len(body) > MOST_BYTES:
        raise NoAnswer(f"{url}: the answer is larger than {MOST_BYTES // 1_000_000} MB")
    return Answer(url, response.headers.get("Content-Type", "").partition(";")[0].strip().lower(), body)


class _Connections(HTTPAdapter):
    """Opens connections that can be cut, from before a proxy answers and TLS begins."""

    def __init__(self) -> None:
        super().__init__()
        self._lock = threading.Lock()
        self._sockets: list[socket.socket] = []
        self._is_cut = False

    def get_connection_with_tls_context(self, *args: Any, **options: Any) -> Any:
        pool: Any = super().get_connection_with_tls_context(*args, **options)
        register = self._register

        class Connection(pool.ConnectionCls):
            def _new_conn(self) -> socket.socket:
                sock: socket.socket = super()._new_conn()
                register(sock)
                return sock

        pool.ConnectionCls = Connection
        return pool

    def _register(self, sock: socket.socket) -> None:
        # A duplicate: TLS takes the descriptor away from the socket that it wraps.
        with self._lock:
            self._sockets.append(sock.dup())
        if self._is_cut:
            self.cut()

    def cut(self) -> None:
        """Cut all connections, and those that are opened later."""
        with self._lock:
            self._is_cut = True
            for open_socket in self._sockets:
                with suppress(OSError):
                    open_socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        super().close()
        with self._lock:
            for open_socket in self._sockets:
                open_socket.close()
            self._sockets.clear()


@contextmanager
def _session() -> Iterator[requests.Session]:
    """Open a session that ends after `OIDC_TIMEOUT`, which as a timeout of requests only limits each pause."""
    connections = _Connections()
    watchdog = threading.Timer(settings.OIDC_TIMEOUT, connections.cut)
    watchdog.daemon = True
    watchdog.start()
    try:
        with requests.Session() as session:
            session.headers["Accept-Encoding"] = "identity"
            session.mount("http://", connections)
            session.mount("https://", connections)
            yield session
    finally:
        watchdog.cancel()
