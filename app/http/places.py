"""Whose connections a process serves: how many of each client, and which of them make room for others."""

from __future__ import annotations

import ipaddress
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Protocol

from app.services.errors import Unavailable


class Connection(Protocol):
    """What holds a place."""

    def shed(self) -> None:
        """End, as somebody else needs the place."""


def client_of(host: str) -> str:
    """The client that an address counts for: itself; of IPv6 the network of 64 bits, as anybody gets a whole one."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv4Address):
        return host
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.IPv6Network((int(address) >> 64 << 64, 64)))


class Places:
    """The places of one process. They belong to its event loop.

    Args:
        most: connections in all.
        most_a_client: connections of one client.
        trusted: whether an address is a proxy's, whose connections are of many clients and count for none.
    """

    def __init__(
        self, most: int = 2048, most_a_client: int = 512, trusted: Callable[[str], bool] = lambda _: False
    ) -> None:
        self.most = most
        self._most_a_client, self._trusted = most_a_client, trusted
        self._taken: dict[Connection, str | None] = {}
        self._clients: Counter[str | None] = Counter()
        #: Those that have been idle for longest come first.
        self._idle: dict[Connection, None] = {}

    def __len__(self) -> int:
        return len(self._taken)

    def take(self, connection: Connection, host: str) -> None:
        """Give a place to a connection from an address. Where there is none, whichever has been idle for longest ends:
        of the same client, if that has as many as it may, else of all.

        Raises:
            Unavailable: when none of these is idle.
        """
        client = None if self._trusted(host) else client_of(host)
        if client is not None and self._clients[client] >= self._most_a_client:
            own = (each for each in self._idle if self._taken[each] == client)
            self._shed(own, "your address has as many connections as one may have: use those, or send again later")
        if len(self._taken) >= self.most:
            self._shed(iter(self._idle), "the server has as many connections as it takes: send again later")
        self._taken[connection] = client
        self._clients[client] += 1

    def _shed(self, idle: Iterator[Connection], otherwise: str) -> None:
        longest = next(idle, None)
        if longest is None:
            raise Unavailable(otherwise)
        self.leave(longest)
        longest.shed()

    def leave(self, connection: Connection) -> None:
        """A connection is at its end, whether or not it had a place."""
        if connection not in self._taken:
            return
        self.busy(connection)
        client = self._taken.pop(connection)
        self._clients[client] -= 1
        if not self._clients[client]:
            del self._clients[client]

    def idle(self, connection: Connection) -> None:
        """A connection has its reply, and has not said anything since."""
        if connection in self._taken:
            self._idle[connection] = None

    def busy(self, connection: Connection) -> None:
        """A connection has said something."""
        self._idle.pop(connection, None)
