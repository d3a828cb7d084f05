"""Between the event loop and the lanes: when work is handed over, and how its results come back."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from app.services.answering.tickets import Ticket

#: Seconds between two looks for waits that have lasted too long.
TICK_SECONDS = 0.1


class Delivery:
    """Hands tickets to the lanes once an iteration of the event loop, and gets them back a group at a time.

    All waits are timed by one clock: a timer for each would cost more than the wait.
    """

    def __init__(self) -> None:
        self.loop: asyncio.AbstractEventLoop | None = None
        self._waits: deque[tuple[float, asyncio.Future[None]]] = deque()

    def soon(self, work: Callable[[], None]) -> None:
        """Call ``work`` in the next iteration of the event loop, or at once where no loop runs."""
        try:
            asyncio.get_running_loop().call_soon(work)
        except RuntimeError:
            work()

    async def wait(self, future: asyncio.Future[None], seconds: float) -> None:
        """Wait for a ticket's future.

        Args:
            future: set by :meth:`__call__` when the ticket is done.
            seconds: the longest wait, give or take :data:`TICK_SECONDS`; the same for all tickets.

        Raises:
            TimeoutError: when it is over.
        """
        loop = asyncio.get_running_loop()
        if not self._waits:
            loop.call_later(TICK_SECONDS, self._tick, loop)
        self._waits.append((loop.time() + seconds, future))
        await future

    def _tick(self, loop: asyncio.AbstractEventLoop) -> None:
        while self._waits and (self._waits[0][1].done() or self._waits[0][0] <= loop.time()):
            _, future = self._waits.popleft()
            if not future.done():
                future.set_exception(TimeoutError())
        if self._waits:
            loop.call_later(TICK_SECONDS, self._tick, loop)

    def __call__(self, tickets: list[Ticket]) -> None:
        """Tell whoever waits for these tickets that they are done. From any thread; waiters outside it are events."""
        awaited = []
        for ticket in tickets:
            if isinstance(ticket.waiter, asyncio.Future):
                awaited.append(ticket)
            elif ticket.waiter is not None:
                ticket.waiter.set()
        if awaited and self.loop is not None and not self.loop.is_closed():
            self.loop.call_soon_threadsafe(self._resolve, awaited)

    @staticmethod
    def _resolve(tickets: list[Ticket]) -> None:
        for ticket in tickets:
            ticket.delivered = True
            if not ticket.waiter.done():
                ticket.waiter.set_result(None)
