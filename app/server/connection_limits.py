"""How many connections a process serves, in all and of each client, and which silent or idle one ends to make room."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from itertools import chain
from typing import Protocol

from app.http.clients import client_of
from app.services.errors import Unavailable


class Connection(Protocol):
    """A connection that counts against the limits."""

    def close_idle(self) -> None:
        """End, to make room for another connection; no request of it is under way."""


class ConnectionLimits:
    """Counts the connections of one process. For its event loop's thread alone.

    Args:
        most: connections in all.
        most_each: connections of one client.
        trusted: whether an address is a proxy's, whose connections are of many clients and count for none.
    """

    def __init__(
        self, most: int = 2048, most_each: int = 512, trusted: Callable[[str], bool] = lambda _: False
    ) -> None:
        self.most = most
        self._most_each, self._trusted = most_each, trusted
        #: The client of each connection; None for a proxy's.
        self._client_of: dict[Connection, str | None] = {}
        self._count: Counter[str | None] = Counter()
        #: Connections that have not asked anything yet, by client, the first that came first.
        self._silent: dict[str | None, dict[Connection, None]] = {}
        #: Idle connections, the one that has been idle for longest first.
        self._idle: dict[Connection, None] = {}

    def __len__(self) -> int:
        return len(self._client_of)

    def admit(self, connection: Connection, host: str) -> None:
        """Count a connection from an address.

        Where a limit is reached, another connection ends: one of the same client when that client has as many as it
        may, else any. One that has never asked anything goes before one that has had a reply: of the client with the
        most of these, the one that came first, as who means to ask does so at once. Else it is the one that has been
        idle for longest.

        Raises:
            Unavailable: when a limit is reached and each such connection has a request under way.
        """
        client = None if self._trusted(host) else client_of(host)
        if client is not None and self._count[client] >= self._most_each:
            idle = (each for each in self._idle if self._client_of[each] == client)
            self._end_first(
                chain(self._silent.get(client, ()), idle),
                "your address has as many connections as one may have: use those, or send again later",
            )
        if len(self._client_of) >= self.most:
            silent = max(self._silent.values(), key=len, default={})
            self._end_first(
                chain(silent, self._idle), "the server has as many connections as it takes: send again later"
            )
        self._client_of[connection] = client
        self._count[client] += 1
        self._silent.setdefault(client, {})[connection] = None

    def _end_first(self, among: Iterator[Connection], refusal: str) -> None:
        first = next(among, None)
        if first is None:
            raise Unavailable(refusal)
        self.release(first)
        first.close_idle()

    def release(self, connection: Connection) -> None:
        """Count a connection no more. It may never have been counted."""
        if connection not in self._client_of:
            return
        self.mark_busy(connection)
        client = self._client_of.pop(connection)
        self._count[client] -= 1
        if not self._count[client]:
            del self._count[client]

    def mark_idle(self, connection: Connection) -> None:
        """A connection has its reply, and its client has sent no other request since."""
        if connection in self._client_of:
            self._idle[connection] = None

    def mark_busy(self, connection: Connection) -> None:
        """A connection's client has sent a request, to the end of its head."""
        self._idle.pop(connection, None)
        client = self._client_of.get(connection)
        silent = self._silent.get(client, {})
        if connection in silent:
            del silent[connection]
            if not silent:
                del self._silent[client]
