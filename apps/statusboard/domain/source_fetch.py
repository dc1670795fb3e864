"""Ask a monitoring source for its current state over HTTP: only hosts that the settings name, in bounded time and size.

Redirects are not followed.
"""

import http.client
import json
import socket
import time
from base64 import b64encode
from netrc import NetrcParseError, netrc
from urllib.parse import urlsplit

from django.conf import settings

from apps.core.domain.http_deadline import connection_until
from apps.core.domain.plugins import UnknownPlugin
from apps.core.errors import InvalidFields
from apps.statusboard.feeds.registry import FEEDS

SECONDS = 20
CONNECT_SECONDS = 5
MOST_BYTES = 4_000_000


class PullFailed(Exception):
    """The source gave no answer that can be used; the message says why."""


def check_pull(*, feed: str, url: str) -> None:
    """Raise `InvalidFields` unless a source of this feed can be fetched from this URL."""
    try:
        _check_host(url)
        _addresses(feed, url)
    except PullFailed as error:
        raise InvalidFields({"pull_url": [str(error)]}) from error


def fetch(*, feed: str, url: str) -> bytes:
    """Return the answers of a source, one a line if its feed asks for several. Raises `PullFailed`."""
    _check_host(url)
    addresses = _addresses(feed, url)
    login, password = _credentials(urlsplit(url).hostname or "")
    question = FEEDS.get(feed).question
    if question and login == "auth":
        question = json.dumps([{**part, "auth": password} for part in json.loads(question)]).encode()
    headers = {"User-Agent": "opsportal", **_identification(login, password)}
    ends = time.monotonic() + SECONDS
    return b"\n".join(_ask(address, headers, question, ends) for address in addresses)


def _ask(url: str, headers: dict[str, str], question: bytes, ends: float) -> bytes:
    """Return the body of one answer that arrives before `ends`. Raises `PullFailed`."""
    parts = urlsplit(url)
    is_tls = parts.scheme == "https"
    address = (parts.hostname or "", parts.port or (443 if is_tls else 80))
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    headers = {"Host": parts.netloc, **headers}
    if question:
        headers["Content-Type"] = "application/json"
    try:
        sock = socket.create_connection(address, timeout=CONNECT_SECONDS)
        sock.settimeout(SECONDS)
        left = ends - time.monotonic()
        with connection_until(sock, host=address[0], tls=is_tls, seconds=left) as connection:
            connection.request("POST" if question else "GET", path, question or None, headers)
            return _body_of(connection.getresponse())
    except TimeoutError as error:
        raise PullFailed(f"The answer takes longer than {SECONDS} s.") from error
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise PullFailed(f"{type(error).__name__}: {error}") from error


def _body_of(answer: http.client.HTTPResponse) -> bytes:
    """Return the body of an answer as it was sent: nothing is decompressed, so it cannot grow.

    Raises `PullFailed` for another answer than a whole one of 200, and as `HTTPResponse.read`.
    """
    if answer.status != 200:
        raise PullFailed(f"It answers {answer.status} {answer.reason}".strip())
    if (encoding := answer.headers.get("Content-Encoding", "identity")) != "identity":
        raise PullFailed(f"The answer is compressed ({encoding[:20]}), which was not requested.")
    body = answer.read(MOST_BYTES + 1)
    if len(body) > MOST_BYTES:
        raise PullFailed(f"The answer is larger than {MOST_BYTES // 1_000_000} MB.")
    if answer.length:
        raise http.client.IncompleteRead(body, answer.length)
    return body


def _addresses(feed: str, url: str) -> list[str]:
    try:
        addresses = FEEDS.get(feed).addresses(url)
    except (UnknownPlugin, ValueError) as error:
        raise PullFailed(str(error)) from error
    if not addresses:
        raise PullFailed(f"Sources of the format “{feed}” cannot be fetched.")
    return addresses


def _check_host(url: str) -> None:
    try:
        parts = urlsplit(url)
        place = f"{parts.hostname}:{parts.port}" if parts.port else parts.hostname
    except ValueError as error:
        raise PullFailed("Enter a valid URL.") from error
    if parts.scheme not in ("http", "https") or parts.username is not None:
        raise PullFailed("Enter a URL with http:// or https:// and without a user name.")
    if not {place, parts.hostname} & set(settings.FEED_HOSTS):
        raise PullFailed(f"{place} is not allowed. An admin can add it to FEED_HOSTS.")


def _credentials(host: str) -> tuple[str, str]:
    """Return login and password of the portal at a host, empty if it has none."""
    if not settings.FEED_NETRC:
        return "", ""
    try:
        found = netrc(settings.FEED_NETRC).authenticators(host)
    except (OSError, NetrcParseError) as error:
        raise PullFailed(f"FEED_NETRC cannot be read: {error}") from error
    return (found[0], found[2]) if found else ("", "")


def _identification(login: str, password: str) -> dict[str, str]:
    """Return the headers for a login: `bearer` has a token as password, and that of `auth` is in the question."""
    if login in ("", "auth"):
        return {}
    if login == "bearer":
        return {"Authorization": f"Bearer {password}"}
    return {"Authorization": f"Basic {b64encode(f'{login}:{password}'.encode()).decode()}"}
