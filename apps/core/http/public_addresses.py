"""IP addresses of the public internet, independent of the Python version.

Sources: the IANA IPv4 and IPv6 Special-Purpose Address Registries and IPv4/IPv6 Multicast Address
Space registries, as of October 2025 (RFC 6890 and its updates, RFC 9637, RFC 9780), and RFC 3879
(site-local), RFC 4291 (IPv4-compatible), RFC 6052 (NAT64), RFC 3056 (6to4). `ipaddress.is_global`
differs between Python versions.
"""

from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network

#: Special-purpose IPv4 networks, including those that routers may forward: no webhook has a reason
#: to call them.
_SPECIAL_4 = [
    IPv4Network(network)
    for network in (
        "0.0.0.0/8",  # this network
        "10.0.0.0/8",  # private
        "100.64.0.0/10",  # shared address space of providers; metadata service of Alibaba Cloud
        "127.0.0.0/8",  # loopback
        "168.63.129.16/32",  # platform service of Azure; in no registry
        "169.254.0.0/16",  # link-local; metadata services of most clouds
        "172.16.0.0/12",  # private
        # IETF protocol assignments; 192.0.0.192 is the metadata service of Oracle Cloud
        "192.0.0.0/24",
        "192.0.2.0/24",  # documentation
        "192.31.196.0/24",  # AS112
        "192.52.193.0/24",  # automatic multicast tunnelling
        "192.88.99.0/24",  # 6to4 relays, deprecated
        "192.168.0.0/16",  # private
        "192.175.48.0/24",  # AS112
        "198.18.0.0/15",  # benchmarks
        "198.51.100.0/24",  # documentation
        "203.0.113.0/24",  # documentation
        "224.0.0.0/4",  # multicast
        "240.0.0.0/4",  # reserved, and limited broadcast
    )
]
#: The only IPv6 space that IANA has assigned to global unicast. Everything else is special,
#: reserved or multicast: ::/96, 64:ff9b:1::/48, 100::/64, 5f00::/16, fc00::/7, fe80::/10,
#: fec0::/10, ff00::/8.
_GLOBAL_6 = IPv6Network("2000::/3")
_SPECIAL_6 = [
    IPv6Network(network)
    for network in (
        "2001::/23",  # IETF protocol assignments: Teredo, benchmarks, ORCHID, AMT, anycast
        "2001:db8::/32",  # documentation
        "2620:4f:8000::/48",  # AS112
        "3fff::/20",  # documentation
    )
]
_NAT64 = IPv6Network("64:ff9b::/96")


def embedded(address: IPv4Address | IPv6Address) -> IPv4Address | IPv6Address:
    """Return the IPv4 address embedded in an IPv6 address, else the address itself.

    IPv4-mapped, NAT64 and 6to4 addresses embed one.
    """
    if isinstance(address, IPv6Address):
        nat64 = None
        if address in _NAT64:
            nat64 = IPv4Address(int(address) & 0xFFFFFFFF)
        return address.ipv4_mapped or address.sixtofour or nat64 or address
    return address


def is_public(address: IPv4Address | IPv6Address) -> bool:
    """Return whether packets to an address reach only the public internet."""
    address = embedded(address)
    if isinstance(address, IPv6Address):
        return address in _GLOBAL_6 and not any(address in network for network in _SPECIAL_6)
    return not any(address in network for network in _SPECIAL_4)
