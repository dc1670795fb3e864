"""Fetch a log from a web server that an operator has allowed.

Time and size are limited, and redirects are not followed.
"""

import os
import re
import tempfile
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from email.utils import parsedate_to_datetime
from typing import BinaryIO
from urllib.parse import urlsplit

from apps.core.http.addresses import ListedServers
from apps.core.http.client import HttpAnswer, TransferLimits, send
from apps.core.http.errors import (
    AddressRefused,
    ConnectionFailed,
    CutShort,
    HttpError,
    ResponseTooLarge,
    TimedOut,
)
from apps.diagnosis.engine.logs.tail import (
    WHOLE_BYTES,
    LogMissing,
    LogPart,
    LogRefused,
    LogUnreadable,
)
from apps.diagnosis.enums import Refusal

#: Time limit for the whole log. A server that exceeds it is not tried again for a while.
LIMIT_SECONDS = 20.0
REST_SECONDS = 60.0
#: Status for a range of an empty log, which has no last bytes.
NO_BYTES = 416
_RANGE = re.compile(r"bytes (\d{1,18})-\d{1,18}/(\d{1,18})")
_resting: dict[str, float] = {}


def is_remote(path: str) -> bool:
    """Return whether a log is at a URL, not in a file."""
    return path.startswith(("https://", "http://"))


@contextmanager
def fetched(url: str, servers: Collection[str]) -> Iterator[tuple[int, LogPart]]:
    """Fetch a log into a temporary file; yield its descriptor and the part that it holds.

    Of a log larger than 64 MB, the last 64 MB are fetched and written at their offset. The file has
    the modification time that the server reports. `servers` are origins such as
    `https://logs.example.org`. Raises `LogError`.
    """
    parts = urlsplit(url)
    server = f"{parts.scheme}://{parts.netloc}"
    if server in servers and time.monotonic() < _resting.get(server, 0):
        raise LogUnreadable(f"{url}: {server} timed out recently")

    with tempfile.TemporaryFile() as file:
        try:
            part = _fetch(url, servers, file)
        except AddressRefused:
            raise LogRefused(f"{url}: {server} is not in LOG_SERVERS", Refusal.SERVER) from None
        except (TimedOut, CutShort) as error:
            if isinstance(error, TimedOut):
                _resting[server] = time.monotonic() + REST_SECONDS
            raise LogUnreadable(
                f"{url}: not received completely within {LIMIT_SECONDS:g} s"
            ) from None
        except ResponseTooLarge:
            reason = "larger than 64 MB, and the server does not send the end alone"
            raise LogUnreadable(f"{url}: {reason}") from None
        except ConnectionFailed as error:
            raise LogUnreadable(f"{url}: {error.reason or type(error.reason).__name__}") from None
        except (HttpError, OSError) as error:
            raise LogUnreadable(f"{url}: {error}") from None
        yield file.fileno(), part


def _fetch(url: str, servers: Collection[str], file: BinaryIO) -> LogPart:
    """Write the response to a file.

    Raises `LogError`, `HttpError`, and `OSError` if the file cannot be written.
    """
    limits = TransferLimits(
        connect=LIMIT_SECONDS, read=LIMIT_SECONDS, total=LIMIT_SECONDS, most_bytes=WHOLE_BYTES
    )
    headers = {"Range": f"bytes=-{WHOLE_BYTES}"}
    with send("GET", url, rule=ListedServers(servers), limits=limits, headers=headers) as answer:
        start = _start_of(url, answer)
        if answer.status != NO_BYTES:
            file.seek(start)
            file.writelines(answer.blocks())
            file.flush()

    with suppress(KeyError, TypeError, ValueError, OverflowError):
        modified = parsedate_to_datetime(answer.headers["Last-Modified"]).timestamp()
        os.utime(file.fileno(), (modified, modified))
    return LogPart(start)


def _start_of(url: str, answer: HttpAnswer) -> int:
    """Return the offset in the log at which a response begins.

    Raises `LogError` if the response contains no log.
    """
    if answer.status in {404, 410}:
        raise LogMissing(f"{url}: not found ({answer.status})")
    if 300 <= answer.status < 400:
        raise LogRefused(
            f"{url}: redirects to {str(answer.headers.get('Location'))[:200]}, which is not "
            "followed"
        )
    if answer.status == 206 and (
        sent_range := _RANGE.fullmatch(answer.headers.get("Content-Range", ""))
    ):
        return int(sent_range[1])
    if answer.status not in {200, NO_BYTES}:
        raise LogUnreadable(f"{url}: the server answered {answer.status} {answer.reason}")
    return 0
