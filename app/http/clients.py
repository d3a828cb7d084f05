"""Whom an address counts for."""

from __future__ import annotations

import ipaddress


def client_of(host: str) -> str:
    """The client that an address counts for: itself, or in IPv6 its network of 64 bits, as one customer has it all."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv4Address):
        return host
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.IPv6Network((int(address) >> 64 << 64, 64)))
