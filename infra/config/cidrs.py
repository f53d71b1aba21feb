"""Ranges of addresses in settings: whether a text is one, and who can come from it."""

from ipaddress import IPv4Network, ip_network

PRIVATE = tuple(map(IPv4Network, ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10")))  # RFC 1918, RFC 6598


def network_of(cidr: str) -> IPv4Network | None:
    """The range, or None if it is not one."""
    try:
        found = ip_network(cidr)
    except ValueError:
        return None
    return found if isinstance(found, IPv4Network) else None


def malformed(cidr: str) -> str:
    """The reason why a text that looks like a range is not one; "" if it is."""
    if network_of(cidr):
        return ""
    try:
        return f"found {cidr!r}, whose address goes beyond its length; did you mean {ip_network(cidr, strict=False)}?"
    except ValueError:
        return f"found {cidr!r}; allowed is a range such as 10.64.0.0/16, each number up to 255, the length up to 32"


def is_private(network: IPv4Network) -> bool:
    """Addresses that the internet does not route."""
    return any(network.subnet_of(one) for one in PRIVATE)


def not_public(cidr: str) -> str:
    """The reason why people cannot come from a range over the internet; "" if it can."""
    network = network_of(cidr)
    if network is None:
        return malformed(cidr)
    if network.prefixlen == 0:
        return f"found {cidr!r}, the whole internet: name the ranges of your office or VPN, such as 198.51.100.0/24"
    if is_private(network):
        return f"found {cidr!r}, a private range, from which nothing comes over the internet: name the public addresses behind it"
    return ""
