"""The door: who comes in, how often, and what knocking with wrong keys costs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Protocol
from weakref import WeakValueDictionary

import structlog
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect, Request

from app.http import bodies
from app.http.places import client_of
from app.http.rates import Rate
from app.services.errors import TooManyRequests, Unauthenticated
from app.services.principals import Principal, Principals

log = structlog.get_logger("app.http")

#: So many seconds of heavy work count as one heavy request.
REQUEST_SECONDS = 0.01
#: A wrong key costs its sender this long.
FAILED_LOGIN_SECONDS = 0.25
#: Keys that are new here and looked at, or wrong and being paid for, at a time: of one client, and in all. The next one
#: waits for its turn, and is not looked at before: a refusal that tells a guess apart would be a faster guess, and one
#: that does not would turn good keys away (docs/decisions/0016-who-makes-room.md).
GUESSES_A_CLIENT = 32
GUESSES = 256


class Rates(Protocol):
    """What the operator allows one key."""

    @property
    def rate_limit(self) -> float | None: ...
    @property
    def rate_burst(self) -> int: ...
    @property
    def heavy_rate_limit(self) -> float | None: ...
    @property
    def heavy_rate_burst(self) -> int: ...


class Door:
    """Recognises principals, counts their requests, and slows down who guesses keys. It belongs to the event loop.

    Args:
        principals: who there is.
        limits: requests that one key may send.
        refused: called with the reason, ``login`` or ``rate``, of each wrong key and each request that comes too often.
    """

    def __init__(self, principals: Principals, limits: Rates, refused: Callable[[str], None]) -> None:
        self._principals, self._refused = principals, refused
        self._rate = Rate(limits.rate_limit, limits.rate_burst)
        self._heavy = Rate(limits.heavy_rate_limit, limits.heavy_rate_burst)
        self._looking: dict[str, asyncio.Event] = {}
        self._places = asyncio.Semaphore(GUESSES)
        #: There while somebody uses them.
        self._places_of: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()

    async def admit(self, request: Request, *, heavy: bool = False) -> Principal:
        """Who is asking; ``heavy`` requests are those that take much work, and have a rate of their own.

        Raises:
            Unauthenticated: when the key is nobody's.
            TooManyRequests: when the key comes too often.
        """
        principal = await self._recognise(request)
        self._take(self._rate, principal)
        request.scope["counted"] = 1
        if heavy:
            self._take(self._heavy, principal)
        return principal

    def charge(self, request: Request, principal: Principal, requests: int) -> None:
        """Count an admitted request as so many in all, if it was not counted as more already.

        Raises:
            TooManyRequests: when they are too many; what the request was counted as before stays counted.
        """
        counted = request.scope["counted"]
        if requests > counted:
            self._take(self._rate, principal, requests, paid=counted)
            request.scope["counted"] = requests

    def worked(self, name: str, seconds: float) -> None:
        """Count heavy work by the time that it took: as so many requests, of which one was counted before."""
        self._heavy.owe(name, max(0.0, seconds / REQUEST_SECONDS - 1))

    def _take(self, rate: Rate, principal: Principal, tokens: int = 1, paid: int = 0) -> None:
        try:
            rate.take(principal.name, tokens, paid)
        except TooManyRequests:
            self._refused("rate")
            raise

    async def _recognise(self, request: Request) -> Principal:
        scheme, _, key = (bodies.header(request, b"authorization") or "").partition(" ")
        if scheme.lower() != "bearer":
            key = ""
        known = self._principals.recall(key) if key else None
        if known is not None:
            return known
        # Many requests may come at once with a key that is new here: one of them looks it up for all.
        looking = self._looking.get(key)
        if looking is not None:
            await looking.wait()
            known = self._principals.recall(key)
            if known is not None:
                return known
        # Whose key was good a moment ago does not wait behind those who guess.
        guess = not (key and self._principals.remembers(key))
        looked = self._looking.setdefault(key, asyncio.Event())
        host = request.client.host if request.client else "unknown"
        try:
            async with AsyncExitStack() as places:
                if guess:
                    client = client_of(host)
                    own = self._places_of.setdefault(client, asyncio.Semaphore(GUESSES_A_CLIENT))
                    await places.enter_async_context(_held(own, request))
                    await places.enter_async_context(_held(self._places, request))
                try:
                    if not key:
                        raise Unauthenticated("an API key is needed: send Authorization: Bearer KEY")
                    return await run_in_threadpool(self._principals.authenticate, key)
                except Unauthenticated:
                    self._found(key, looked)
                    self._refused("login")
                    log.warning("log-in failed", client=host)
                    await asyncio.sleep(FAILED_LOGIN_SECONDS)
                    raise
        finally:
            self._found(key, looked)

    def _found(self, key: str, looked: asyncio.Event) -> None:
        """A key has been looked up: whoever waits for that goes on."""
        looked.set()
        if self._looking.get(key) is looked:
            del self._looking[key]


@asynccontextmanager
async def _held(places: asyncio.Semaphore, request: Request) -> AsyncIterator[None]:
    """One of these places, in the order of those who came. Nobody waits for a client that has hung up; one that hangs
    up later keeps its place.

    Raises:
        ClientDisconnect: when it has hung up before its turn.
    """
    turn = asyncio.ensure_future(places.acquire())
    try:
        await asyncio.wait((turn, request.scope["state"]["lost"]), return_when=asyncio.FIRST_COMPLETED)
        if not turn.done():
            raise ClientDisconnect
        yield
    finally:
        if turn.done():
            places.release()
        else:
            turn.cancel()
