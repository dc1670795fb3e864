"""Calls to the OpenID provider, limited in time, size and number.

A slow provider must not block the portal.
"""

import json
import ssl
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import requests
from django.conf import settings
from requests.adapters import HTTPAdapter
from urllib3.exceptions import HTTPError

from apps.core.http.deadline import Deadline

#: Maximum bytes of a response.
MOST_BYTES = 1_000_000
#: Maximum concurrent calls in this process, so that some of its four threads keep serving pages.
MOST_CALLS = 2
#: How long a login waits for other logins that call the provider, in seconds.
WAIT = 1.0

_free_calls = threading.BoundedSemaphore(MOST_CALLS)


class NoAnswer(Exception):
    """The provider is unavailable, or its response is not OpenID Connect."""


class Denied(Exception):
    """The provider rejected the portal's call, for example because a code was used before.

    `code` is an error code of the standard, such as `invalid_grant`, or empty.
    """

    def __init__(self, reason: str, code: str = "") -> None:
        super().__init__(reason)
        self.code = code


@dataclass(frozen=True)
class ProviderResponse:
    """A response with status 200."""

    url: str
    content_type: str
    body: bytes

    def json(self) -> dict[str, Any]:
        """Return the JSON object in the response. Raises `NoAnswer`."""
        try:
            value = json.loads(self.body)
        except (ValueError, RecursionError) as error:
            raise NoAnswer(f"{self.url}: {error}") from error
        if not isinstance(value, dict):
            raise NoAnswer(f"{self.url}: the answer is not an object")
        return value


def call(method: str, url: str, **parameters: Any) -> ProviderResponse:
    """Call the provider; the complete response must arrive within `OIDC_TIMEOUT`.

    Raises `NoAnswer`, `Denied`. Redirects are not followed, because a call contains the portal's
    secret or a user's token.
    """
    if not _free_calls.acquire(timeout=WAIT):
        raise NoAnswer(f"{url}: {MOST_CALLS} other logins wait for the provider")
    # The timeout of requests limits only each pause of the provider.
    limits: dict[str, Any] = {
        "timeout": settings.OIDC_TIMEOUT,
        "allow_redirects": False,
        "stream": True,
    }
    try:
        with (
            Deadline(settings.OIDC_TIMEOUT) as deadline,
            _session(deadline) as session,
            session.request(method, url, **limits, **parameters) as response,
        ):
            body = response.raw.read(MOST_BYTES + 1)
    except (OSError, ValueError, HTTPError) as error:
        raise NoAnswer(f"{url}: {error}") from error
    finally:
        _free_calls.release()
    if deadline.is_over:
        raise NoAnswer(f"{url}: not all of the answer arrived within {settings.OIDC_TIMEOUT:g} s")
    if 400 <= response.status_code < 500:
        reason = f"{url}: status {response.status_code}, {body[:200].decode(errors='replace')}"
        raise Denied(reason, _error_code(body))
    if response.status_code != 200:
        raise NoAnswer(f"{url}: status {response.status_code}")
    if len(body) > MOST_BYTES:
        raise NoAnswer(f"{url}: the answer is larger than {MOST_BYTES // 1_000_000} MB")
    return ProviderResponse(
        url, response.headers.get("Content-Type", "").partition(";")[0].strip().lower(), body
    )


def _error_code(body: bytes) -> str:
    """Return the error code in the body of a rejection (RFC 6749, section 5.2), or ""."""
    try:
        error = json.loads(body)
    except (ValueError, RecursionError):
        return ""
    return str(error.get("error", "")) if isinstance(error, dict) else ""


class _Connections(HTTPAdapter):
    """Opens connections for requests, which handles proxies and CA bundles, with a deadline."""

    def __init__(self, deadline: Deadline) -> None:
        super().__init__()
        self._deadline = deadline

    def get_connection_with_tls_context(self, *args: Any, **options: Any) -> Any:
        pool: Any = super().get_connection_with_tls_context(*args, **options)
        pool.ConnectionCls = self._deadline.watched(pool.ConnectionCls)
        return pool


def _authorities() -> str | bool:
    """Return the file or directory of the system's certificate authorities.

    A lab's own authority is among them, but not among those that requests brings along. They are
    used only on a system without any. `REQUESTS_CA_BUNDLE` and `CURL_CA_BUNDLE`
    precede both.
    """
    paths = ssl.get_default_verify_paths()
    if paths.cafile:
        return paths.cafile
    if paths.capath and any(Path(paths.capath).iterdir()):
        return paths.capath
    return True


def _session(deadline: Deadline) -> requests.Session:
    """Return a session whose connections the deadline cuts."""
    session = requests.Session()
    session.headers["Accept-Encoding"] = "identity"
    session.verify = _authorities()
    session.mount("http://", _Connections(deadline))
    session.mount("https://", _Connections(deadline))
    return session
