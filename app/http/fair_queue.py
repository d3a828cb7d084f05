"""A fair queue for costly work: a few turns at a time, principals in rotation, abandoned work given up."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from starlette.requests import Request

from app.services.errors import TooManyRequests, Unavailable
from app.services.principals import Principal

#: Most requests that wait for a turn: of one principal, and of all.
WAITING_EACH, WAITING = 32, 256
#: Seconds after which a refused request may come again.
RETRY_SECONDS = 2
#: Seconds for which work may go on that is under way when the server drains.
DRAIN_SECONDS = 5.0
_ENDING = "the server is ending: send the request again"


class Abandoned(Exception):
    """Costly work was given up. Not a CuratorError: the search for a plan would take that for a plan's refusal."""


class CostlyWork:
    """Costly work under way, and whether anybody still waits for it."""

    def __init__(self) -> None:
        self._given_up = asyncio.get_running_loop().create_future()
        #: Why the work was given up, in words for the client.
        self.abandoned: str | None = None
        #: Seconds of the turn in which the work waited for other work. They are not charged.
        self.idle = 0.0

    def check(self) -> None:
        """Go on while somebody waits for the work. From any thread; it costs nothing, so call it often.

        Raises:
            Abandoned: when the work was given up.
        """
        if self.abandoned is not None:
            raise Abandoned

    async def unless_abandoned(self, future: asyncio.Future[Any]) -> Any:
        """The result of a future, which is cancelled when the work is given up.

        Raises:
            Abandoned: when the work was given up first.
        """
        try:
            await asyncio.wait((future, self._given_up), return_when=asyncio.FIRST_COMPLETED)
            if not future.done():
                self.check()
        finally:
            future.cancel()  # without effect on one that is done
        return future.result()

    def abandon(self, reason: str) -> None:
        """Give the work up, for this reason. For the event loop's thread alone."""
        self.abandoned = self.abandoned or reason
        if not self._given_up.done():
            self._given_up.set_result(None)


class FairQueue:
    """Turns at costly work, in rotation: each principal with waiting requests gets one turn, then the next principal.

    However many requests one principal has waiting, no other waits for longer than the work under way and one turn of
    each other principal. Where there are several turns at a time, one principal never has them all. A request whose
    client hangs up leaves the queue, and its work is given up (:class:`CostlyWork`). For the event loop's thread alone.

    Args:
        turns: most turns at a time.
        refused: called with the reason, ``work``, of each request that finds too many waiting.
        finished: called at the end of each turn with the principal's name and the seconds that it worked.
        seconds: the longest turn; None sets no limit.
    """

    def __init__(
        self,
        turns: int,
        refused: Callable[[str], None] = lambda _: None,
        finished: Callable[[str, float], None] = lambda *_: None,
        seconds: float | None = None,
    ) -> None:
        self._free, self._each = turns, max(1, turns - 1)
        self._refused, self._finished, self._seconds = refused, finished, seconds
        #: Waiting requests by principal; the principal whose turn is next comes first.
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}
        self._under_way: Counter[str] = Counter()
        self._works: set[CostlyWork] = set()
        self._draining = False

    @asynccontextmanager
    async def turn(self, request: Request, principal: Principal) -> AsyncIterator[CostlyWork]:
        """Wait for a turn, which lasts as long as the context. The request's body must have been read.

        Raises:
            TooManyRequests: when too many of the principal's requests wait.
            Unavailable: when too many requests wait in all, or the work was given up: the client hung up, the turn
                took too long, or the server drains.
        """
        work = CostlyWork()
        listening = asyncio.create_task(_hung_up(request, work))
        try:
            await self._enter(principal.name, work)
            async with self._begun_turn(principal.name, work):
                yield work
        except Abandoned:
            raise Unavailable(work.abandoned or "", RETRY_SECONDS) from None
        finally:
            listening.cancel()

    @asynccontextmanager
    async def _begun_turn(self, name: str, work: CostlyWork) -> AsyncIterator[None]:
        """Have a turn that has begun, and give it up when it has lasted too long."""
        loop = asyncio.get_running_loop()
        late = None
        if self._seconds is not None:
            late = loop.call_later(
                self._seconds,
                work.abandon,
                f"this takes longer than the {self._seconds:g} s it may: ask for less; what was found so far may be "
                "kept, so that the same request takes less next time",
            )
        self._works.add(work)
        began = loop.time()
        try:
            yield
        except asyncio.CancelledError:
            work.abandon(_ENDING)  # else its thread would go on
            raise
        finally:
            if late is not None:
                late.cancel()
            self._works.discard(work)
            self._finished(name, loop.time() - began - work.idle)
            self._end(name)

    def drain(self) -> None:
        """The server drains: refuse what waits, and give up what is under way in :data:`DRAIN_SECONDS`."""
        if self._draining:
            return
        self._draining = True
        for waiting in self._waiting.values():
            for waiter in waiting:
                if not waiter.done():
                    waiter.set_exception(Unavailable(_ENDING))
        for work in self._works:
            asyncio.get_running_loop().call_later(DRAIN_SECONDS, work.abandon, _ENDING)

    async def _enter(self, name: str, work: CostlyWork) -> None:
        if self._draining:
            raise Unavailable(_ENDING)
        if self._free and self._under_way[name] < self._each:
            self._begin(name)  # whatever waits could not have this turn, or it would have it already
            return
        if len(self._waiting.get(name, ())) >= WAITING_EACH:
            self._refused("work")
            raise TooManyRequests(
                f"{WAITING_EACH} of your requests that take much work wait already: send this one again when they are "
                "answered",
                RETRY_SECONDS,
            )
        if sum(map(len, self._waiting.values())) >= WAITING:
            self._refused("work")
            raise Unavailable("too many requests that take much work wait: send again a little later", RETRY_SECONDS)
        waiter = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(name, deque()).append(waiter)
        try:
            await work.unless_abandoned(waiter)
        except BaseException:
            if waiter.done() and not waiter.cancelled() and waiter.exception() is None:
                self._end(name)  # it was given the turn just before
            else:
                self._forget(name, waiter)
            raise

    def _begin(self, name: str) -> None:
        self._free -= 1
        self._under_way[name] += 1

    def _end(self, name: str) -> None:
        self._free += 1
        self._under_way[name] -= 1
        if not self._under_way[name]:
            del self._under_way[name]
        self._next()

    def _forget(self, name: str, waiter: asyncio.Future[None]) -> None:
        waiting = self._waiting.get(name)
        if waiting is not None and waiter in waiting:
            waiting.remove(waiter)
            if not waiting:
                del self._waiting[name]

    def _next(self) -> None:
        """Give free turns to requests that wait."""
        while self._free:
            name = next((name for name in self._waiting if self._under_way[name] < self._each), None)
            if name is None:
                return
            waiting = self._waiting.pop(name)
            waiter = waiting.popleft()
            if waiting:
                self._waiting[name] = waiting  # behind all other principals
            if not waiter.done():
                self._begin(name)
                waiter.set_result(None)


async def _hung_up(request: Request, work: CostlyWork) -> None:
    """Give the work up when the client has hung up: after a body, nothing else can come."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
    work.abandon("nobody waits for this")
