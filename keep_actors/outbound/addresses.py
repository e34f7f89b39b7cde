"""The addresses that a request may reach: public ones, and those that an operator names.

Decided by the address that is connected to, never by the text of a URL: names, redirects and odd spellings of numbers
all end in an address.
"""

from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from typing import Final, TypeAlias

Address: TypeAlias = tuple[str, int]
"""A host as it stands in a URL, in lower case, and a port."""

PORT_MAX: Final = 65_535

_NOT_PUBLIC: Final[tuple[IPv4Network | IPv6Network, ...]] = tuple(
    ip_network(text)
    for text in (
        "0.0.0.0/8",  # this host
        "10.0.0.0/8",
        "100.64.0.0/10",  # behind a provider's translation
        "127.0.0.0/8",
        "168.63.129.16/32",  # a cloud's own service
        "169.254.0.0/16",  # link-local, with the metadata of most clouds
        "172.16.0.0/12",
        "192.0.0.0/24",  # protocol assignments, with the metadata of one cloud
        "192.0.2.0/24",
        "192.88.99.0/24",  # relays to IPv6
        "192.168.0.0/16",
        "198.18.0.0/15",  # benchmarks
        "198.51.100.0/24",
        "203.0.113.0/24",
        "224.0.0.0/3",  # multicast, reserved, broadcast
        "::/3",  # not given to anybody as public; unspecified, loopback, and several forms of IPv4
        "2001::/23",  # protocol assignments, with tunnels to IPv4
        "2001:db8::/32",
        "2002::/16",  # tunnels to IPv4
        "3fff::/20",
        "4000::/2",  # not given to anybody as public
        "8000::/1",  # the same; private, link-local, multicast
    )
)
"""Stated here in full: `ipaddress` knows fewer of them, and others in each release of Python."""


def is_public(text: str) -> bool:
    """Return whether an IP address belongs to the public Internet. A text that is no address does not."""
    try:
        found = ip_address(text.partition("%")[0])
    except ValueError:
        return False
    if found.version == 6 and found.ipv4_mapped is not None:
        found = found.ipv4_mapped
    return found.is_global and not any(found in each for each in _NOT_PUBLIC if each.version == found.version)


def parse_address(text: str) -> Address:
    """Read `host:port`, or `[address]:port` for IPv6. Raises `ValueError`."""
    host, colon, port = text.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        host = ""  # IPv6 without its brackets: nobody can tell where the port begins
    is_port = port.isascii() and port.isdigit() and 0 < int(port) <= PORT_MAX
    if not (host and colon and is_port) or any(char.isspace() or char in "/@" for char in host):
        raise ValueError(f"{text!r} is not host:port, such as 127.0.0.1:8080 or [::1]:8080")
    return host.lower(), int(port)
