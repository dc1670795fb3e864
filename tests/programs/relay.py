"""A relay on loopback between a client and a server,
to make the server unreachable for one client alone.
"""

import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


class Relay:
    """Listens on `port` and passes everything on to `target`, unless it is cut."""

    def __init__(self, target: tuple[str, int]) -> None:
        self._target = target
        self._open: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._accept()

    def close(self) -> None:
        # A thread that waits in accept() keeps the port open after close() alone.
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for end in self._open:
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        self._open.clear()

    @contextmanager
    def cut(self) -> Iterator[None]:
        """End all connections and refuse new ones."""
        self.close()
        try:
            yield
        finally:
            self._listener = socket.create_server(("127.0.0.1", self.port))
            self._accept()

    def _greet(self, client: socket.socket) -> socket.socket:
        """Return the connection of a client on which it sends what is passed on."""
        return client

    def _accept(self) -> None:
        threading.Thread(target=self._serve, args=(self._listener,), daemon=True).start()

    def _serve(self, listener: socket.socket) -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            try:
                client = self._greet(client)
                server = socket.create_connection(self._target)
            except OSError:
                client.close()
                continue
            self._open += [client, server]
            for source, sink in ((client, server), (server, client)):
                threading.Thread(target=_copy, args=(source, sink), daemon=True).start()


class TLSRelay(Relay):
    """A relay whose clients speak TLS, and the server does not."""

    def __init__(self, target: tuple[str, int], certificate: tuple[Path, Path]) -> None:
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(*certificate)
        super().__init__(target)

    def _greet(self, client: socket.socket) -> socket.socket:
        return self._context.wrap_socket(client, server_side=True)


def _copy(source: socket.socket, sink: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(65536):
            sink.sendall(data)
    for end in (source, sink):
        with suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)
