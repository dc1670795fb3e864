"""One signed POST to a checked address: connected by IP address, without redirects, within a time limit."""

import hashlib
import hmac
import socket
from contextlib import suppress

from apps.core.domain.http_deadline import connection_until
from apps.notifications.domain.webhook_addresses import check_address, resolve

#: Limits of one step of the connection, and of all of it.
TIMEOUT_SECONDS = 10
LIMIT_SECONDS = 20
_MAX_ADDRESSES = 3


class Refusal(Exception):
    """The receiver answered, but not with 2xx."""


def signature(secret: str, timestamp: int, body: bytes) -> str:
    """Return the HMAC-SHA256 over `timestamp.body`, as hexadecimal digits."""
    return hmac.new(secret.encode(), b"%d." % timestamp + body, hashlib.sha256).hexdigest()


def post_signed(*, url: str, secret: str, body: bytes, timestamp: int, delivery: str) -> None:
    """Send `body`. Raises `BadAddress`, `Refusal`, `OSError` or `http.client.HTTPException`."""
    parts = check_address(url)
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    headers = {
        "Content-Type": "application/json",
        "User-Agent": "opsportal",
        "Host": parts.netloc,
        "X-Opsportal-Delivery": delivery,
        "X-Opsportal-Timestamp": str(timestamp),
        "X-Opsportal-Signature": f"sha256={signature(secret, timestamp, body)}",
    }
    sock = _connect(resolve(parts))
    is_tls = parts.scheme == "https"
    with connection_until(sock, host=parts.hostname or "", tls=is_tls, seconds=LIMIT_SECONDS) as connection:
        connection.request("POST", path, body, headers)
        answer = connection.getresponse()
        if not 200 <= answer.status < 300:
            raise Refusal(f"answered {answer.status}")


def _connect(addresses: list[tuple[str, int]]) -> socket.socket:
    """Connect to the first address that answers; raises the error of the last."""
    *others, last = addresses[:_MAX_ADDRESSES]
    for address in others:
        with suppress(OSError):
            return socket.create_connection(address, timeout=TIMEOUT_SECONDS / _MAX_ADDRESSES)
    return socket.create_connection(last, timeout=TIMEOUT_SECONDS)
