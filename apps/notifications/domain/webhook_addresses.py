"""URLs that a webhook may call.

They are https URLs of hosts on the public internet, unless the settings allow others.
"""

from urllib.parse import urlsplit

from django.conf import settings

from apps.core.http.addresses import PublicHosts
from apps.core.http.errors import AddressRefused

MAX_LENGTH = 500
_NOT_PUBLIC = "is not on the public internet. An admin can allow its network in WEBHOOK_NETWORKS."


class BadAddress(Exception):
    """The URL may not be called; the message says why."""


def check_address(url: str) -> None:
    """Check that a URL is valid, and that its host may be called if it is an IP address.

    Raises `BadAddress`.
    """
    if (
        len(url) > MAX_LENGTH
        or not url.isascii()
        or any(character <= " " or character == "\x7f" for character in url)
    ):
        raise BadAddress(f"Enter a URL of at most {MAX_LENGTH} ASCII characters without blanks.")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise BadAddress("Enter a valid URL.") from None
    schemes = {"https", "http"} if settings.WEBHOOK_HTTP else {"https"}
    if parts.scheme not in schemes or not parts.hostname or port == 0:
        raise BadAddress("The URL must start with https:// and contain a host.")
    if parts.username is not None or parts.password is not None:
        raise BadAddress("The URL must not contain a user name or password.")
    try:
        address_rule().check(parts)
    except AddressRefused:
        raise BadAddress(f"This host {_NOT_PUBLIC}") from None


def address_rule() -> PublicHosts:
    """Return the rule for the hosts that a webhook may call."""
    return PublicHosts(settings.WEBHOOK_NETWORKS)


def refusal(error: AddressRefused) -> BadAddress:
    """Return the error for a host whose name leads elsewhere than to the public internet."""
    return BadAddress(f"{error.server} {_NOT_PUBLIC}")
