"""Fetch the current state of a monitoring source over HTTP, with limits on time and size.

Only hosts named in the settings are allowed, and redirects are not followed.
"""

import json
import time
from base64 import b64encode
from netrc import NetrcParseError, netrc
from urllib.parse import urlsplit

from django.conf import settings

from apps.core.domain.plugins import UnknownPlugin
from apps.core.errors import InvalidFields
from apps.core.http.addresses import ListedHosts
from apps.core.http.client import TransferLimits, send
from apps.core.http.errors import AddressRefused, HttpError, TimedOut
from apps.statusboard.feeds.registry import FEEDS

SECONDS = 20
CONNECT_SECONDS = 5
MOST_BYTES = 4_000_000


class PullFailed(Exception):
    """The source returned no usable response; the message says why."""


def check_pull(*, feed: str, url: str) -> None:
    """Raise `InvalidFields` unless a source of this feed can be fetched from this URL."""
    try:
        _check_host(url)
        _addresses(feed, url)
    except PullFailed as error:
        raise InvalidFields({"pull_url": [str(error)]}) from error


def fetch(*, feed: str, url: str) -> bytes:
    """Return the responses of a source, one per line if its feed sends several requests.

    Raises `PullFailed`.
    """
    _check_host(url)
    addresses = _addresses(feed, url)
    login, password = _credentials(urlsplit(url).hostname or "")
    question = FEEDS.get(feed).question
    if question and login == "auth":
        question = json.dumps(
            [{**part, "auth": password} for part in json.loads(question)]
        ).encode()
    headers = _identification(login, password)
    ends = time.monotonic() + SECONDS
    return b"\n".join(_fetch_one(address, headers, question, ends) for address in addresses)


def _fetch_one(url: str, headers: dict[str, str], question: bytes, ends: float) -> bytes:
    """Return the body of one response that arrives before `ends`. Raises `PullFailed`."""
    seconds_left = ends - time.monotonic()
    limits = TransferLimits(
        connect=CONNECT_SECONDS, read=SECONDS, total=seconds_left, most_bytes=MOST_BYTES
    )
    rule = ListedHosts(settings.FEED_HOSTS)
    method = "GET"
    if question:
        method = "POST"
        headers = {**headers, "Content-Type": "application/json"}

    try:
        with send(
            method, url, rule=rule, limits=limits, headers=headers, body=question or None
        ) as answer:
            if answer.status != 200:
                raise PullFailed(f"It answers {answer.status} {answer.reason}".strip())
            return answer.body()
    except TimedOut as error:
        raise PullFailed(f"The answer takes longer than {SECONDS} s.") from error
    except HttpError as error:
        raise PullFailed(str(error)) from error


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
        if parts.scheme not in ("http", "https") or parts.username is not None:
            raise PullFailed("Enter a URL with http:// or https:// and without a user name.")
        ListedHosts(settings.FEED_HOSTS).check(parts)
    except AddressRefused as error:
        raise PullFailed(
            f"{error.server} is not allowed. An admin can add it to FEED_HOSTS."
        ) from error
    except ValueError as error:
        raise PullFailed("Enter a valid URL.") from error


def _credentials(host: str) -> tuple[str, str]:
    """Return the portal's login and password for a host; empty if there are none."""
    if not settings.FEED_NETRC:
        return "", ""
    try:
        entry = netrc(settings.FEED_NETRC).authenticators(host)
    except (OSError, NetrcParseError) as error:
        raise PullFailed(f"FEED_NETRC cannot be read: {error}") from error
    if entry is None:
        return "", ""
    login, _account, password = entry
    return login, password


def _identification(login: str, password: str) -> dict[str, str]:
    """Return the authentication headers for a login.

    For the login `bearer`, the password is a token. For `auth`, the request body contains the
    password.
    """
    if login in ("", "auth"):
        return {}
    if login == "bearer":
        return {"Authorization": f"Bearer {password}"}
    return {"Authorization": f"Basic {b64encode(f'{login}:{password}'.encode()).decode()}"}
