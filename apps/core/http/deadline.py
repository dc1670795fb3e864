"""Connections that end in time, whatever the server sends.

A socket timeout bounds only one read. A server that sends its TLS handshake, headers or body byte
by byte could hold a worker for days.
"""

import socket
import threading
from contextlib import suppress
from typing import Any, Self, TypeVar

from urllib3.connection import HTTPConnection

ConnectionClass = TypeVar("ConnectionClass", bound=type[HTTPConnection])


class Deadline:
    """Cuts connections some seconds after the start of the `with` block."""

    def __init__(self, seconds: float) -> None:
        self._lock = threading.Lock()
        self._sockets: list[socket.socket] = []
        #: Whether the connections were cut.
        self.is_over = False
        self._timer = threading.Timer(max(seconds, 0), self._cut)
        self._timer.daemon = True

    def __enter__(self) -> Self:
        self._timer.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()
        with self._lock:
            for watched_socket in self._sockets:
                watched_socket.close()
            self._sockets.clear()

    def watched(self, connection_class: ConnectionClass) -> ConnectionClass:
        """Return a subclass of a urllib3 connection whose socket is watched.

        The deadline covers the connection from the start, including proxy and TLS handshake.
        """
        base: Any = connection_class
        watch = self._watch

        class WatchedConnection(base):
            def _new_conn(self) -> socket.socket:
                new_socket: socket.socket = super()._new_conn()
                watch(new_socket)
                return new_socket

        return WatchedConnection  # type: ignore[return-value]

    def _watch(self, new_socket: socket.socket) -> None:
        # A duplicate, because TLS detaches the descriptor from the socket that it wraps.
        duplicate = new_socket.dup()
        with self._lock:
            self._sockets.append(duplicate)
            # Resolving the name, or connecting, used up all the time.
            if self.is_over:
                _shut_down(duplicate)

    def _cut(self) -> None:
        with self._lock:
            self.is_over = True
            for watched_socket in self._sockets:
                _shut_down(watched_socket)


def _shut_down(open_socket: socket.socket) -> None:
    # The server may have closed the connection.
    with suppress(OSError):
        open_socket.shutdown(socket.SHUT_RDWR)
