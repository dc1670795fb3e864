"""A connection ends in time, wherever its server takes its time."""

import socket
import time

import pytest

from apps.core.domain.http_deadline import connection_until
from tests import dripping_server
from tests.dripping_server import dripping


def ask(port: int, *, tls: bool, seconds: float) -> bytes:
    """Return what a server on loopback answers."""
    sock = socket.create_connection(("127.0.0.1", port), timeout=5)
    with connection_until(sock, host="127.0.0.1", tls=tls, seconds=seconds) as connection:
        connection.request("GET", "/")
        return connection.getresponse().read()


@pytest.mark.parametrize("beginning", ["TLS_HANDSHAKE", "HEADERS", "BODY", "LONG_BODY"])
def test_server_that_drips_is_cut_off(beginning):
    begun = time.monotonic()
    with dripping(getattr(dripping_server, beginning)) as port, pytest.raises(TimeoutError, match="not complete"):
        ask(port, tls=beginning == "TLS_HANDSHAKE", seconds=0.3)
    assert time.monotonic() - begun < dripping_server.PATIENCE_SECONDS


def test_other_errors_stay_what_they_are():
    with dripping(b"no HTTP\r\n") as port, pytest.raises(OSError, match="SSL"):
        ask(port, tls=True, seconds=5)
