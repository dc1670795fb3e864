"""Ask a monitoring source for its current state over HTTP: only hosts that the settings name, in bounded time and size.

Redirects are not followed.
"""

import json
import time
from netrc import NetrcParseError, netrc
from typing import Any
from urllib.parse import urlsplit

import urllib3
from django.conf import settings

from apps.core.domain.plugins import UnknownPlugin
from apps.core.errors import InvalidFields
from apps.statusboard.feeds.registry import FEEDS

SECONDS = 20
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
    ends = time.monotonic() + SECONDS
    with urllib3.PoolManager(headers=_identification(login, password)) as pool:
        return b"\n".join(_ask(pool, address, question, ends) for address in addresses)


def _ask(pool: urllib3.PoolManager, url: str, question: bytes, ends: float) -> bytes:
    timeout = urllib3.Timeout(connect=5, read=max(ends - time.monotonic(), 0.1))
    given: dict[str, Any] = {}
    if question:
        given = {"body": question, "headers": {**pool.headers, "Content-Type": "application/json"}}
    try:
        answer = pool.request(
            "POST" if question else "GET",
            url,
            redirect=False,
            retries=False,
            timeout=timeout,
            preload_content=False,
            **given,
        )
        if answer.status != 200:
            raise PullFailed(f"It answers {answer.status} {answer.reason or ''}".strip())
        parts, size = [], 0
        for part in answer.stream(65_536):
            parts.append(part)
            size += len(part)
            if size > MOST_BYTES:
                raise PullFailed(f"The answer is larger than {MOST_BYTES // 1_000_000} MB.")
            if time.monotonic() > ends:
                raise PullFailed(f"The answer takes longer than {SECONDS} s.")
        return b"".join(parts)
    except urllib3.exceptions.HTTPError as error:
        raise PullFailed(f"{type(error).__name__}: {error}") from error


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
    return urllib3.make_headers(basic_auth=f"{login}:{password}")
