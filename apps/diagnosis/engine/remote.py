"""Fetch a log from a web server that an operator has listed: bounded in time and size, and never redirected."""

import http.client
import os
import re
import socket
import tempfile
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from email.utils import parsedate_to_datetime
from typing import BinaryIO
from urllib.parse import urlsplit

from apps.core.domain.http_deadline import connection_until
from apps.diagnosis.engine.tail import WHOLE_BYTES, LogMissing, LogPart, LogRefused, LogUnreadable

#: All of a log arrives in this time, or it is given up; a server that was too slow is left alone for a while.
LIMIT_SECONDS = 20.0
REST_SECONDS = 60.0
_STEP = 64 * 1024
#: An empty log has no last bytes.
NO_BYTES = 416
_RANGE = re.compile(r"bytes (\d{1,18})-\d{1,18}/(\d{1,18})")
_resting: dict[str, float] = {}


def is_remote(path: str) -> bool:
    """Tell whether a log is at a URL, not in a file."""
    return path.startswith(("https://", "http://"))


@contextmanager
def fetched(url: str, servers: Collection[str]) -> Iterator[tuple[int, LogPart]]:
    """Fetch a log into a file that is gone afterwards; yield its descriptor and which part of the log it has.

    Of a log larger than 64 MB the last 64 MB are fetched, at their offset. The file's time is the server's.
    `servers` are like `https://logs.example.org`. Raises `LogError`.
    """
    parts = urlsplit(url)
    server = f"{parts.scheme}://{parts.netloc}"
    if server not in servers:
        raise LogRefused(f"{url}: {server} is not in LOG_SERVERS")
    if time.monotonic() < _resting.get(server, 0):
        raise LogUnreadable(f"{url}: {server} did not answer in time a short time ago")
    with tempfile.TemporaryFile() as file:
        try:
            part = _fetch(url, file)
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise LogUnreadable(f"{url}: {error or type(error).__name__}") from None
        file.flush()
        yield file.fileno(), part


def _fetch(url: str, file: BinaryIO) -> LogPart:
    """Write the answer to a file. Raises `LogError`, `OSError`, `http.client.HTTPException`, `ValueError`."""
    parts = urlsplit(url)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    headers = {"Host": parts.netloc, "User-Agent": "opsportal", "Range": f"bytes=-{WHOLE_BYTES}"}
    ends = time.monotonic() + LIMIT_SECONDS
    try:
        sock = socket.create_connection((parts.hostname or "", port), timeout=LIMIT_SECONDS)
        left = ends - time.monotonic()
        with connection_until(sock, host=parts.hostname or "", tls=parts.scheme == "https", seconds=left) as connection:
            connection.request("GET", path, headers=headers)
            answer = connection.getresponse()
            start = _start_of(url, answer)
            is_whole = _copy(url, answer, start, file)
    except TimeoutError:
        _resting[f"{parts.scheme}://{parts.netloc}"] = time.monotonic() + REST_SECONDS
        is_whole = False
    if not is_whole:
        raise LogUnreadable(f"{url}: not all of it arrived within {LIMIT_SECONDS:g} s")
    file.flush()
    with suppress(TypeError, ValueError, OverflowError):
        modified = parsedate_to_datetime(answer.headers["Last-Modified"]).timestamp()
        os.utime(file.fileno(), (modified, modified))
    return LogPart(start)


def _copy(url: str, answer: http.client.HTTPResponse, start: int, file: BinaryIO) -> bool:
    """Copy an answer to its place in a file; return whether all of it has come. Raises `LogUnreadable` beyond 64 MB."""
    file.seek(start)
    left = 0 if answer.status == NO_BYTES else WHOLE_BYTES
    while left > 0 and (data := answer.read1(min(_STEP, left))):
        file.write(data)
        left -= len(data)
    if not left and answer.status == 200 and answer.read1(1):
        raise LogUnreadable(f"{url}: larger than 64 MB, and the server does not send the end alone")
    return not answer.length


def _start_of(url: str, answer: http.client.HTTPResponse) -> int:
    """Return the offset in the log at which an answer begins. Raises `LogError` for one without a log."""
    if answer.status in {404, 410}:
        raise LogMissing(f"{url}: not found ({answer.status})")
    if 300 <= answer.status < 400:
        raise LogRefused(f"{url}: redirects to {str(answer.headers['Location'])[:200]}, which is not followed")
    if answer.status == 206 and (found := _RANGE.fullmatch(answer.headers["Content-Range"] or "")):
        return int(found[1])
    if answer.status not in {200, NO_BYTES}:
        raise LogUnreadable(f"{url}: the server answered {answer.status} {answer.reason}")
    return 0
