"""URLs that a webhook may call: https, and hosts on the public internet, unless the settings allow others."""

import socket
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from urllib.parse import SplitResult, urlsplit

from django.conf import settings

from apps.core.http.public_addresses import embedded, is_public

MAX_LENGTH = 500


class BadAddress(Exception):
    """The URL may not be called; the message says why."""


def check_address(url: str) -> SplitResult:
    """Return the parts of a valid URL whose host, if an IP address, may be called. Raises `BadAddress`."""
    if len(url) > MAX_LENGTH or not url.isascii() or any(character <= " " or character == "\x7f" for character in url):
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
        literal = ip_address(parts.hostname)
    except ValueError:
        return parts
    if not may_call(literal):
        raise BadAddress("This host is not on the public internet. An admin can allow its network in WEBHOOK_NETWORKS.")
    return parts


def resolve(parts: SplitResult) -> list[tuple[str, int]]:
    """Resolve the host once and return the checked addresses to connect to, so that a name cannot change its address
    between check and call (DNS rebinding). Raises `BadAddress`."""
    host, port = parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise BadAddress(f"{host} cannot be resolved: {error}") from None
    addresses = [str(entry[4][0]) for entry in found]
    if not addresses or not all(may_call(ip_address(address.partition("%")[0])) for address in addresses):
        raise BadAddress(f"{host} is not on the public internet. An admin can allow its network in WEBHOOK_NETWORKS.")
    return [(address, port) for address in dict.fromkeys(addresses)]


def may_call(address: IPv4Address | IPv6Address) -> bool:
    """Return whether an address is on the public internet, or allowed by WEBHOOK_NETWORKS."""
    inner = embedded(address)
    return is_public(inner) or any(inner in ip_network(network) for network in settings.WEBHOOK_NETWORKS)
