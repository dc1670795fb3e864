"""Which addresses a webhook may call: https, and no host of the inside, unless the settings allow it."""

import socket
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address, ip_network
from urllib.parse import SplitResult, urlsplit

from django.conf import settings

_NAT64 = IPv6Network("64:ff9b::/96")
MAX_LENGTH = 500


class BadAddress(Exception):
    """This address may not be called; the message says why."""


def host_of(url: str) -> str:
    """Return the host of an address, for people to read: the rest may hold a secret."""
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""


def check_address(url: str) -> SplitResult:
    """Return the parts of an address that looks as if it may be called. Raises `BadAddress`."""
    if len(url) > MAX_LENGTH or not url.isascii() or any(character <= " " or character == "\x7f" for character in url):
        raise BadAddress(f"An address of at most {MAX_LENGTH} characters, ASCII, without blanks.")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise BadAddress("This is no address.") from None
    schemes = {"https", "http"} if settings.WEBHOOK_HTTP else {"https"}
    if parts.scheme not in schemes or not parts.hostname or port == 0:
        raise BadAddress("It must begin with https:// and name a host.")
    if parts.username is not None or parts.password is not None:
        raise BadAddress("It must not hold a user or a password.")
    try:
        literal = ip_address(parts.hostname)
    except ValueError:
        return parts
    if not may_call(literal):
        raise BadAddress("This host is of the inside: its network must be in WEBHOOK_NETWORKS.")
    return parts


def resolve(parts: SplitResult) -> list[tuple[str, int]]:
    """Return the addresses to call, so that a name cannot lead elsewhere after it was judged. Raises `BadAddress`."""
    host, port = parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise BadAddress(f"{host} has no address: {error}") from None
    addresses = [str(entry[4][0]) for entry in found]
    if not addresses or not all(may_call(ip_address(address.partition("%")[0])) for address in addresses):
        raise BadAddress(f"{host} is of the inside: its network must be in WEBHOOK_NETWORKS.")
    return [(address, port) for address in dict.fromkeys(addresses)]


def may_call(address: IPv4Address | IPv6Address) -> bool:
    """Tell whether an address is of the public internet, or allowed by WEBHOOK_NETWORKS."""
    if isinstance(address, IPv6Address):
        inner = address.ipv4_mapped or address.sixtofour or (address.teredo[1] if address.teredo else None)
        if inner is not None:
            return may_call(inner)
        if address in _NAT64:
            return may_call(IPv4Address(int(address) & 0xFFFFFFFF))
    if any(address in ip_network(network) for network in settings.WEBHOOK_NETWORKS):
        return True
    return address.is_global and not address.is_multicast and not address.is_reserved
