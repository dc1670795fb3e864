"""Rules for the servers that requests may go to, and for the addresses they connect to."""

import socket
from collections.abc import Collection
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import Protocol
from urllib.parse import SplitResult

from apps.core.http.errors import AddressRefused, NameNotResolved
from apps.core.http.public_addresses import embedded, is_public


class AddressRule(Protocol):
    """Decides which servers may be called."""

    def check(self, url: SplitResult) -> None:
        """Raise `AddressRefused` if the URL alone shows that its server may not be called."""

    def resolve(self, url: SplitResult) -> list[str]:
        """Return the hosts or IP addresses to connect to.

        Raises `AddressRefused`, `NameNotResolved`.
        """


class _Listed:
    """Servers that an operator has listed are called whatever address their name resolves to."""

    def resolve(self, url: SplitResult) -> list[str]:
        return [url.hostname or ""]


@dataclass(frozen=True)
class ListedServers(_Listed):
    """Allows only servers that an operator has listed, such as `https://logs.example.org`."""

    servers: Collection[str]

    def check(self, url: SplitResult) -> None:
        server = f"{url.scheme}://{url.netloc}"
        if server not in self.servers:
            raise AddressRefused(server)


@dataclass(frozen=True)
class ListedHosts(_Listed):
    """Allows only hosts that an operator has listed as `HOST` or `HOST:PORT`."""

    hosts: Collection[str]

    def check(self, url: SplitResult) -> None:
        if url.port:
            server = f"{url.hostname}:{url.port}"
        else:
            server = str(url.hostname)
        if server not in self.hosts and url.hostname not in self.hosts:
            raise AddressRefused(server)


@dataclass(frozen=True)
class PublicHosts:
    """Allows only hosts on the public internet and in listed networks, such as `10.1.0.0/16`.

    A name is resolved once, and the connection goes to an address that was checked. The name
    therefore cannot change its address between check and request (DNS rebinding).
    """

    networks: Collection[str] = ()

    def check(self, url: SplitResult) -> None:
        host = url.hostname or ""
        try:
            address = ip_address(host)
        except ValueError:
            return
        # The host is a name; its addresses are checked once it is resolved.
        if not self.allows(address):
            raise AddressRefused(host)

    def resolve(self, url: SplitResult) -> list[str]:
        host = url.hostname or ""
        try:
            entries = socket.getaddrinfo(host, url.port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:
            raise NameNotResolved(host, error) from None

        addresses = [str(socket_address[0]) for *_, socket_address in entries]
        if not addresses or not all(
            self.allows(ip_address(address.partition("%")[0])) for address in addresses
        ):
            raise AddressRefused(host)
        return list(dict.fromkeys(addresses))

    def allows(self, address: IPv4Address | IPv6Address) -> bool:
        """Return whether an address is on the public internet or in one of the networks."""
        inner = embedded(address)
        return is_public(inner) or any(inner in ip_network(network) for network in self.networks)
