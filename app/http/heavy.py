"""Turns at costly work: so many at a time, fair between principals, and given up when nobody waits for it any more."""

from __future__ import annotations

import asyncio
import time
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


class Abandoned(Unavailable):
    """Nobody waits for the work any more, or the server ends before it is done."""


class Work:
    """Costly work under way, and whether anybody still waits for it."""

    def __init__(self) -> None:
        self._given_up = asyncio.get_running_loop().create_future()
        self._abandoned = False

    @property
    def abandoned(self) -> bool:
        """Whether nobody waits for the work any more. From any thread."""
        return self._abandoned

    def check(self) -> None:
        """Go on, if anybody waits for the work. From any thread; costs nothing, so call it often.

        Raises:
            Abandoned: when nobody does.
        """
        if self._abandoned:
            raise Abandoned("the work was given up: nobody waited for it, or the server ends; send the request again")

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

    def abandon(self) -> None:
        """Nobody waits any more. It belongs to the event loop."""
        self._abandoned = True
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
    """

    def __init__(
        self,
        turns: int,
        refused: Callable[[str], None] = lambda _: None,
        took: Callable[[str, float], None] = lambda *_: None,
    ) -> None:
        self._free, self._each = turns, max(1, turns - 1)
        self._refused, self._took = refused, took
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
            Unavailable: when as many of all do, or the server ends.
            Abandoned: when the client hangs up before its turn.
        """
        work = Work()
        listening = asyncio.create_task(_hung_up(request, work))
        try:
            await self._enter(principal.name, work)
            self._works.add(work)
            began = time.monotonic()
            try:
                yield work
            except asyncio.CancelledError:
                work.abandon()  # threads go on otherwise
                raise
            finally:
                self._works.discard(work)
                self._took(principal.name, time.monotonic() - began)
                self._leave(principal.name)
        finally:
            listening.cancel()

    def drain(self) -> None:
        """The server ends: whoever waits is refused, and what is under way has a few seconds left."""
        if self._draining:
            return
        self._draining = True
        for waiting in self._waiting.values():
            for place in waiting:
                if not place.done():
                    place.set_exception(_ending())
        for work in self._works:
            asyncio.get_running_loop().call_later(DRAIN_SECONDS, work.abandon)

    async def _enter(self, name: str, work: Work) -> None:
        if self._draining:
            raise _ending()
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


def _ending() -> Unavailable:
    return Unavailable("the server is ending: send the request again")


async def _hung_up(request: Request, work: Work) -> None:
    """Wait until the client is gone. Nothing else comes after a body."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
    work.abandon()
