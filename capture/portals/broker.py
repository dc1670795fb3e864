"""Wakes the portal's workers with one Celery message, in the broker's format.

It implements the protocols of Redis and Celery (message protocol 2), because their libraries need
as much memory as all of the rest. A message may be lost: beat sends one every few seconds.
"""

import json
import logging
import socket
import time
from base64 import b64encode
from collections.abc import Sequence
from contextlib import suppress
from io import BufferedRWPair
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit
from uuid import uuid4

from capture.wire.intake import MOST_WAITING, QUEUE, TASK

logger = logging.getLogger(__name__)

_TIMEOUT_SECONDS = 2.0
_PAUSE_SECONDS = 30.0
_BODY = b64encode(json.dumps([[], {}, {}]).encode()).decode()


class Broker:
    """The Redis of a URL as in REDIS_URL, on a connection that is kept;
    nothing where that is empty.
    """

    def __init__(self, url: str) -> None:
        self._url = url
        self._stream: BufferedRWPair[Any, Any] | None = None
        self._next_at = 0.0

    def wake(self) -> None:
        """Send a message, unless enough are waiting.

        If the broker cannot be reached, only log a warning.
        """
        if not self._url or time.monotonic() < self._next_at:
            return
        try:
            if int(self._ask("LLEN", QUEUE)) < MOST_WAITING:
                self._ask("LPUSH", QUEUE, _message())
        except (OSError, ValueError) as error:
            logger.warning("no worker is woken for %.0f s: %s", _PAUSE_SECONDS, error)
            self._next_at = time.monotonic() + _PAUSE_SECONDS
            self.close()

    def close(self) -> None:
        stream, self._stream = self._stream, None
        if stream:
            with suppress(OSError):  # it writes what could not be sent
                stream.close()

    def _ask(self, *command: str) -> str:
        """Send a command and return its short answer.

        Raises `OSError`, or `ValueError` if it is an error.
        """
        if self._stream is None:
            self._stream = self._connected()
        return _ask(self._stream, command)

    def _connected(self) -> "BufferedRWPair[Any, Any]":
        url = urlsplit(self._url)
        options = dict(parse_qsl(url.query))
        if url.scheme == "unix":
            connection = socket.socket(socket.AF_UNIX)
            connection.settimeout(_TIMEOUT_SECONDS)
            connection.connect(unquote(url.path))
            database = options.get("db", "0")
        else:
            connection = socket.create_connection(
                (url.hostname or "localhost", url.port or 6379), _TIMEOUT_SECONDS
            )
            database = url.path.strip("/") or options.get("db", "0")
        if url.scheme == "rediss":
            import ssl  # only here: it takes some memory

            context = ssl.create_default_context(cafile=options.get("ssl_ca_certs"))
            connection = context.wrap_socket(connection, server_hostname=url.hostname)
        with connection:  # the stream keeps it open
            stream = connection.makefile("rwb")
        if url.password:
            _ask(
                stream,
                ["AUTH", *filter(None, [unquote(url.username or "")]), unquote(url.password)],
            )
        _ask(stream, ["SELECT", database])
        return stream


def _ask(stream: "BufferedRWPair[Any, Any]", command: Sequence[str]) -> str:
    parts = [part.encode() for part in command]
    framed = b"".join(b"$%d\r\n%s\r\n" % (len(part), part) for part in parts)
    stream.write(b"*%d\r\n" % len(parts) + framed)
    stream.flush()

    answer = stream.readline().decode().rstrip()
    if answer[:1] not in {"+", ":"}:
        raise ValueError(answer or "it ended the connection")
    return answer[1:]


def _message() -> str:
    key = str(uuid4())
    return json.dumps(
        {
            "body": _BODY,
            "content-encoding": "utf-8",
            "content-type": "application/json",
            "headers": {"lang": "py", "task": TASK, "id": key, "root_id": key},
            "properties": {
                "correlation_id": key,
                "delivery_mode": 2,
                "delivery_info": {"exchange": "", "routing_key": QUEUE},
                "priority": 0,
                "body_encoding": "base64",
                "delivery_tag": str(uuid4()),
            },
        }
    )
