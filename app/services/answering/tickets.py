"""Requests that wait: the queue that is fair between principals, and what is deferred."""

from __future__ import annotations

import time
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from app.declarations.errors import CuratorError
from app.services.idempotency import IdempotencyKey
from app.services.tracing import FOLLOWED, Trace

#: Most requests that one transaction carries.
GROUP = 64
#: Queries after which nothing more is put into the same transaction.
GROUP_QUERIES = 512
#: A batch of more queries goes alone: it is answered in slices, between which others have their turn.
LONG_BATCH = 8
#: After how long deferred requests are tried again: at first, and at last.
FIRST_PAUSE, LAST_PAUSE = 0.02, 0.5
#: How often at most a turn waits for the rows of deferred sessions.
PATIENT_EVERY = 3.0


@dataclass(slots=True, eq=False)
class Ticket:
    """A request waiting for its turn; :attr:`reply` or :attr:`error` is set when it is done, and :attr:`delivered` when
    whoever waits has been told.

    Attributes:
        answers: those to its first questions, which are recorded, while it waits for what the next one needs.
        waits: how often its next question has waited for numbers that were yet to be counted.
        lacks: why they could not be counted, where it stands again for its turn since then.
        costly: whether it was found to take long, so that it is answered aside.
        left: whether who sent it has hung up: what was not begun of it is not computed.
        trace: the request that it belongs to, where that is followed.
        came: when it began to wait for its turn, in seconds since 1970.
        most: the epsilon that all its answers together may cost; None for any.
        charged: what those that it has cost.
        free: the bytes that are written for those of its answers that cost no budget, and for its reply with them.
        in_turn: whether each of its prices is that of a question behind those before it, and not of the next one.
        ahead: a session apart to which the questions before have come.
    """

    kind: Literal["ask", "batch", "price", "prices", "close"]
    session: str
    actor: str
    queries: Sequence[Any] = ()
    key: IdempotencyKey | None = None
    waiter: Any = None
    reply: bytes | None = None
    error: BaseException | None = None
    delivered: bool = False
    answers: list[bytes] = field(default_factory=list)
    waits: int = 0
    lacks: CuratorError | None = None
    costly: bool = False
    left: bool = False
    trace: Trace | None = field(default_factory=FOLLOWED.get)
    came: float = field(default_factory=time.time)
    most: float | None = None
    charged: float = 0.0
    free: int = 0
    in_turn: bool = False
    ahead: Any = None

    @property
    def prices(self) -> bool:
        """Whether it asks for prices: nothing private is looked at, and nothing recorded."""
        return self.kind in ("price", "prices")

    @property
    def single(self) -> bool:
        """Whether it is about one question, so that a refusal of that refuses it."""
        return self.kind in ("ask", "price")

    @property
    def alone(self) -> bool:
        """Whether it is a group of its own, which may pause."""
        return self.costly or len(self.queries) > LONG_BATCH


class TicketQueue:
    """Waiting requests by who sent them: principals come one after the other, and the requests of each in their order.

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

    def next_group(self, may_begin: Callable[[Ticket], bool] = lambda _: True) -> list[Ticket]:
        """The next group: one request of each principal, and again, until it is full or nobody waits.

        What goes alone is a group of its own, if it ``may_begin``; else its principal is passed over, and keeps the
        place.
        """
        group: list[Ticket] = []
        passed: list[str] = []
        queries = 0
        while self._waiting and len(group) < GROUP:
            actor = next((actor for actor in self._waiting if actor not in passed), None)
            if actor is None:
                break
            waiting = self._waiting[actor]
            alone = waiting[0].alone
            if alone and not may_begin(waiting[0]):
                passed.append(actor)
                continue
            queries += len(waiting[0].queries)
            if group and (alone or queries > GROUP_QUERIES):
                break
            group.append(waiting.popleft())
            if waiting:
                self._waiting.move_to_end(actor)
            else:
                del self._waiting[actor]
            if alone:
                break
        self._count -= len(group)
        return group

    def withdraw(self, session: str) -> list[Ticket]:
        """Take out the requests of one session, in their order."""
        taken: list[Ticket] = []
        for actor, waiting in list(self._waiting.items()):
            mine = [ticket for ticket in waiting if ticket.session == session]
            if mine:
                taken += mine
                left = deque(ticket for ticket in waiting if ticket.session != session)
                if left:
                    self._waiting[actor] = left
                else:
                    del self._waiting[actor]
        self._count -= len(taken)
        return taken


class Deferred:
    """Requests of sessions whose rows another process holds, and has held for longer than a turn takes.

    They wait where they keep nobody else waiting. Of each session one request is tried again after a while, less and
    less often while nothing comes of it.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._waiting: OrderedDict[str, deque[Ticket]] = OrderedDict()
        self._pause, self._again = FIRST_PAUSE, 0.0
        self._patient_again = 0.0

    def __contains__(self, session: str) -> bool:
        return session in self._waiting

    def __bool__(self) -> bool:
        return bool(self._waiting)

    @property
    def seconds(self) -> float | None:
        """How long until something is to be tried again; None where nothing is."""
        return max(0.0, self._again - self._clock()) if self._waiting else None

    def defer(self, tickets: Sequence[Ticket]) -> None:
        """Defer requests, behind those of the same sessions."""
        if not self._waiting:
            self._pause = FIRST_PAUSE
            self._again = self._clock() + self._pause
        for ticket in tickets:
            self._waiting.setdefault(ticket.session, deque()).append(ticket)

    def try_again(self) -> list[Ticket]:
        """The first request of each session, of as many as one transaction carries; none while it is not time. What
        becomes of each is told by :meth:`withdraw` or :meth:`put_back`.
        """
        if not self._waiting or self._clock() < self._again:
            return []
        # Of one whose only request was tried, and ended with an error, nothing is left.
        for session in [session for session, waiting in self._waiting.items() if not waiting]:
            del self._waiting[session]
        sessions = list(self._waiting)[:GROUP]
        for session in sessions:
            self._waiting.move_to_end(session)
        self._pause = min(2 * self._pause, LAST_PAUSE)
        self._again = self._clock() + self._pause
        return [self._waiting[session].popleft() for session in sessions]

    def put_back(self, ticket: Ticket) -> None:
        """A request that was tried again has to wait on."""
        self._waiting[ticket.session].appendleft(ticket)

    def withdraw(self, session: str) -> list[Ticket]:
        """Take out the requests of a session whose row is free again; the one that was tried is not among them."""
        self._pause = FIRST_PAUSE
        return list(self._waiting.pop(session))

    def patient(self) -> bool:
        """Whether it is time to wait for the rows of deferred sessions too, which delays the others of the turn.

        Who does not wait for a row is passed over by those who do: from time to time a deferred session must wait as
        they do, or its turn might never come.
        """
        if self._clock() < self._patient_again:
            return False
        self._patient_again = self._clock() + PATIENT_EVERY
        return True

    def clear(self) -> list[Ticket]:
        """Everything that waits, which waits no longer."""
        tickets = [ticket for waiting in self._waiting.values() for ticket in waiting]
        self._waiting.clear()
        return tickets
