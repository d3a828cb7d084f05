"""Turns at costly work: so many at a time, fair between principals, and given up when nobody waits for it any more."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from starlette.requests import Request

from app.services.errors import TooManyRequests, Unavailable
from app.services.principals import Principal

#: Requests that may wait for their turn: of one principal, and of all.
WAITING_EACH, WAITING = 32, 256
#: After how long a refused request may come again.
RETRY_SECONDS = 2
#: How long work may go on that is under way when the server drains.
DRAIN_SECONDS = 5.0
_ENDING = "the server is ending: send the request again"


class Abandoned(Exception):
    """Costly work was given up. No refusal of the service: what searches for a plan takes those for an answer."""


class Work:
    """Costly work under way, and whether anybody still waits for it."""

    def __init__(self) -> None:
        self._given_up = asyncio.get_running_loop().create_future()
        #: Why the work was given up, in words for the client.
        self.abandoned: str | None = None
        #: Seconds of the turn in which the work itself waited for that of others, which it does not pay for.
        self.idle = 0.0

    def check(self) -> None:
        """Go on, if anybody waits for the work. From any thread; costs nothing, so call it often.

        Raises:
            Abandoned: when nobody does.
        """
        if self.abandoned is not None:
            raise Abandoned

    async def unless_abandoned(self, future: asyncio.Future[Any]) -> Any:
        """What a future comes to, which is cancelled when nobody waits for the work any more.

        Raises:
            Abandoned: when it was.
        """
        try:
            await asyncio.wait((future, self._given_up), return_when=asyncio.FIRST_COMPLETED)
            if not future.done():
                self.check()
        finally:
            future.cancel()  # without effect on one that is done
        return future.result()

    def abandon(self, reason: str) -> None:
        """Give the work up. It belongs to the event loop."""
        self.abandoned = self.abandoned or reason
        if not self._given_up.done():
            self._given_up.set_result(None)


class FairQueue:
    """Turns at costly work: so many at a time, principals one after the other, and a bounded number that wait.

    Of those who wait each has one turn in his round, however many requests he has waiting, so that nobody waits for
    longer than the work under way and one turn of each other. Where there are several turns at a time, one principal
    never has them all. Who hangs up leaves the queue, and the work learns of it (:class:`Work`). It belongs to the
    event loop.

    Args:
        turns: at a time.
        refused: called with the reason, ``work``, of each request that finds too many waiting.
        took: called with the principal's name and the seconds of each turn when it is over.
        seconds: that a turn lasts at most, where there is a limit.
    """

    def __init__(
        self,
        turns: int,
        refused: Callable[[str], None] = lambda _: None,
        took: Callable[[str, float], None] = lambda *_: None,
        seconds: float | None = None,
    ) -> None:
        self._free, self._each = turns, max(1, turns - 1)
        self._refused, self._took, self._seconds = refused, took, seconds
        #: Whose turn is next comes first.
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}
        self._under_way: Counter[str] = Counter()
        self._works: set[Work] = set()
        self._draining = False

    @asynccontextmanager
    async def turn(self, request: Request, principal: Principal) -> AsyncIterator[Work]:
        """Wait for a turn and have it while the context lasts. The request's body must have been read.

        Raises:
            TooManyRequests: at once, when as many of the principal's requests wait as may.
            Unavailable: when as many of all do, or the server ends; and where the work was given up: the client hung
                up, the turn took too long, or the server ends.
        """
        work = Work()
        listening = asyncio.create_task(_hung_up(request, work))
        try:
            await self._enter(principal.name, work)
            async with self._under_way_by(principal.name, work):
                yield work
        except Abandoned:
            raise Unavailable(work.abandoned or "", RETRY_SECONDS) from None
        finally:
            listening.cancel()

    @asynccontextmanager
    async def _under_way_by(self, name: str, work: Work) -> AsyncIterator[None]:
        """A turn that has begun."""
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
            work.abandon(_ENDING)  # threads go on otherwise
            raise
        finally:
            if late is not None:
                late.cancel()
            self._works.discard(work)
            self._took(name, loop.time() - began - work.idle)
            self._leave(name)

    def drain(self) -> None:
        """The server ends: whoever waits is refused, and what is under way has a few seconds left."""
        if self._draining:
            return
        self._draining = True
        for waiting in self._waiting.values():
            for place in waiting:
                if not place.done():
                    place.set_exception(Unavailable(_ENDING))
        for work in self._works:
            asyncio.get_running_loop().call_later(DRAIN_SECONDS, work.abandon, _ENDING)

    async def _enter(self, name: str, work: Work) -> None:
        if self._draining:
            raise Unavailable(_ENDING)
        if self._free and self._under_way[name] < self._each:
            self._begin(name)  # nobody who waits could have it: they would
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
        place = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(name, deque()).append(place)
        try:
            await work.unless_abandoned(place)
        except BaseException:
            if place.done() and not place.cancelled() and place.exception() is None:
                self._leave(name)  # it had been given the turn in the same moment
            else:
                self._forget(name, place)
            raise

    def _begin(self, name: str) -> None:
        self._free -= 1
        self._under_way[name] += 1

    def _leave(self, name: str) -> None:
        self._free += 1
        self._under_way[name] -= 1
        if not self._under_way[name]:
            del self._under_way[name]
        self._next()

    def _forget(self, name: str, place: asyncio.Future[None]) -> None:
        waiting = self._waiting.get(name)
        if waiting is not None and place in waiting:
            waiting.remove(place)
            if not waiting:
                del self._waiting[name]

    def _next(self) -> None:
        """Give free turns to those who wait."""
        while self._free:
            name = next((name for name in self._waiting if self._under_way[name] < self._each), None)
            if name is None:
                return
            waiting = self._waiting.pop(name)
            place = waiting.popleft()
            if waiting:
                self._waiting[name] = waiting  # behind all others
            if not place.done():
                self._begin(name)
                place.set_result(None)


async def _hung_up(request: Request, work: Work) -> None:
    """Wait until the client is gone. Nothing else comes after a body."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
    work.abandon("nobody waits for this")
