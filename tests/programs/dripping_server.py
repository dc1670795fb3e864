"""A server that never finishes: it sends a beginning,
and then a byte now and then until the client leaves.
"""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

_EVERY_SECONDS = 0.05
#: More than a client needs that is cut off after a second, on a busy machine. Others wait for ever.
PATIENCE_SECONDS = 30

#: The head of a TLS record that holds a handshake message of 16 kB, and the head of that message: a
#: ServerHello.
TLS_HANDSHAKE = b"\x16\x03\x03\x40\x00" + b"\x02\x00\x3f\xfc"
HEADERS = b"HTTP/1.1 200 OK\r\nX-Long: "
BODY = b"HTTP/1.1 200 OK\r\n\r\n"
LONG_BODY = b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n"


@contextmanager
def dripping(beginning: bytes) -> Iterator[int]:
    """Serve on a port of loopback, which is yielded."""
    stopped = threading.Event()

    def drip(client: socket.socket) -> None:
        with client, suppress(OSError):
            client.recv(65_536)
            client.sendall(beginning)
            while not stopped.wait(_EVERY_SECONDS):
                client.sendall(b"x")

    def serve() -> None:
        with suppress(OSError):
            while True:
                client, _ = server.accept()
                threading.Thread(target=drip, args=(client,), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as server:
        accepting = threading.Thread(target=serve, daemon=True)
        accepting.start()
        try:
            yield server.getsockname()[1]
        finally:
            stopped.set()
            server.shutdown(socket.SHUT_RDWR)
            accepting.join()
