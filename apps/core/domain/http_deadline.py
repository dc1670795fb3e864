"""HTTP connections that end in time, whatever the server sends.

A timeout of a socket bounds one read only. A server that sends its TLS handshake, headers or body byte by byte would
hold a worker for days.
"""

import http.client
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress


@contextmanager
def connection_until(
    sock: socket.socket, *, host: str, tls: bool, seconds: float
) -> Iterator[http.client.HTTPConnection]:
    """Yield a connection to `host` over a connected socket, which is cut after `seconds`.

    Raises `TimeoutError` if it was cut, even if what had arrived looked complete; else what the connection raises.
    """
    connection = http.client.HTTPConnection(host)
    if tls:
        # The handshake comes later: before it the socket must be known to the watchdog.
        sock = ssl.create_default_context().wrap_socket(sock, server_hostname=host, do_handshake_on_connect=False)
    connection.sock = sock
    is_cut = threading.Event()

    def cut() -> None:
        is_cut.set()
        with suppress(OSError):
            socket.socket.shutdown(sock, socket.SHUT_RDWR)  # not that of TLS, which a reading thread may not expect

    watchdog = threading.Timer(max(seconds, 0), cut)
    watchdog.daemon = True
    watchdog.start()
    try:
        if isinstance(sock, ssl.SSLSocket):
            sock.do_handshake()
        yield connection
    except (OSError, http.client.HTTPException, ValueError) as error:
        if is_cut.is_set():
            raise TimeoutError("not complete in time") from error
        raise
    else:
        if is_cut.is_set():
            raise TimeoutError("not complete in time")
    finally:
        watchdog.cancel()
        connection.close()
        sock.close()
