"""A connection to a server of this machine that can be switched off and on again."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Self


class Switch:
    """Listens on `port` and passes all on to `target`.

    While it is off, connections are cut and refused.
    """

    def __init__(self, target: int) -> None:
        self._target = target
        self._pairs: list[socket.socket] = []
        self._listener = self._listen(0)
        self.port = self._listener.getsockname()[1]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._cut()

    @contextmanager
    def off(self) -> Iterator[None]:
        self._cut()
        try:
            yield
        finally:
            self._listener = self._listen(self.port)

    def _listen(self, port: int) -> socket.socket:
        listener = socket.create_server(("127.0.0.1", port))
        threading.Thread(target=self._accept, args=(listener,), daemon=True).start()
        return listener

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                near, _ = listener.accept()
                far = socket.create_connection(("127.0.0.1", self._target))
            except OSError:
                return
            self._pairs += [near, far]
            for source, sink in ((near, far), (far, near)):
                threading.Thread(target=_pass_on, args=(source, sink), daemon=True).start()

    def _cut(self) -> None:
        self._listener.close()
        with suppress(OSError):  # wakes the thread that waits for a connection
            socket.create_connection(("127.0.0.1", self.port), timeout=0.2).close()
        for one in self._pairs:
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()
        self._pairs.clear()


def _pass_on(source: socket.socket, sink: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(65536):
            sink.sendall(data)
    with suppress(OSError):
        sink.shutdown(socket.SHUT_WR)
