"""One signed POST to a checked address."""

import hashlib
import hmac

from apps.core.http.client import TransferLimits, send
from apps.core.http.errors import AddressRefused
from apps.notifications.domain.webhook_addresses import address_rule, check_address, refusal

#: Limits of one step of the connection, and of all of it.
TIMEOUT_SECONDS = 10
LIMIT_SECONDS = 20


class WebhookRefused(Exception):
    """The receiver answered, but not with 2xx."""

    def __init__(self, status: int) -> None:
        self.status = status
        super().__init__(f"answered {status}")


def signature(secret: str, timestamp: int, body: bytes) -> str:
    """Return the HMAC-SHA256 over `timestamp.body`, as hexadecimal digits."""
    return hmac.new(secret.encode(), b"%d." % timestamp + body, hashlib.sha256).hexdigest()


def post_signed(*, url: str, secret: str, body: bytes, timestamp: int, delivery: str) -> int:
    """Send `body`, and return the status of the answer.

    Raises `BadAddress`, `WebhookRefused` or `HttpError`.
    """
    check_address(url)
    headers = {
        "Content-Type": "application/json",
        "X-Opsportal-Delivery": delivery,
        "X-Opsportal-Timestamp": str(timestamp),
        "X-Opsportal-Signature": f"sha256={signature(secret, timestamp, body)}",
    }
    # Of the answer only the status is read.
    limits = TransferLimits(
        connect=TIMEOUT_SECONDS, read=TIMEOUT_SECONDS, total=LIMIT_SECONDS, most_bytes=0
    )
    try:
        with send(
            "POST", url, rule=address_rule(), limits=limits, headers=headers, body=body
        ) as answer:
            if not 200 <= answer.status < 300:
                raise WebhookRefused(answer.status)
            return answer.status
    except AddressRefused as error:
        raise refusal(error) from None
