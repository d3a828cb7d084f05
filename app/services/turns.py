"""Requests that wait, and whose turn it is."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from app.services.sessions import IdempotencyKey

#: Most requests that one transaction carries.
GROUP = 64
#: Queries after which nothing more is put into the same transaction. A batch is never split: a longer one goes alone.
GROUP_QUERIES = 512


@dataclass(slots=True, eq=False)
class Ticket:
    """A request waiting for its turn; :attr:`reply` or :attr:`error` is set when it is done, and :attr:`delivered` when
    whoever waits has been told.
    """

    kind: Literal["ask", "batch", "close"]
    session: str
    actor: str
    queries: Sequence[Any] = ()
    key: IdempotencyKey | None = None
    waiter: Any = None
    reply: bytes | None = None
    error: BaseException | None = None
    delivered: bool = False


class Turns:
    """Waiting requests by who sent them. Everybody has a turn in turn; requests of one principal keep their order.

    However much somebody sends, another's request is begun after at most one group for each principal that waits.
    """

    def __init__(self) -> None:
        self._waiting: OrderedDict[str, deque[Ticket]] = OrderedDict()
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, tickets: Sequence[Ticket]) -> None:
        """Queue requests behind those of the same principals."""
        for ticket in tickets:
            queue = self._waiting.get(ticket.actor)
            if queue is None:
                queue = self._waiting[ticket.actor] = deque()
            queue.append(ticket)
        self._count += len(tickets)

    def put_back(self, tickets: Sequence[Ticket]) -> None:
        """Requests that were taken and not begun: they are the next ones, in their order."""
        for ticket in reversed(tickets):
            self._waiting.setdefault(ticket.actor, deque()).appendleft(ticket)
            self._waiting.move_to_end(ticket.actor, last=False)
        self._count += len(tickets)

    def take(self) -> list[Ticket]:
        """The next group: one request of each principal, and again, until it is full or nobody waits."""
        group: list[Ticket] = []
        queries = 0
        while self._waiting and len(group) < GROUP:
            actor, waiting = next(iter(self._waiting.items()))
            queries += len(waiting[0].queries)
            if group and queries > GROUP_QUERIES:
                break
            group.append(waiting.popleft())
            if waiting:
                self._waiting.move_to_end(actor)
            else:
                del self._waiting[actor]
        self._count -= len(group)
        return group
