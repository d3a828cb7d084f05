"""The door: who comes in, how often, and what knocking with wrong keys costs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

import structlog
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request

from app.http import bodies
from app.http.rates import Rate
from app.services.errors import TooManyRequests, Unauthenticated
from app.services.principals import Principal, Principals

log = structlog.get_logger("app.http")

#: So many seconds of heavy work count as one heavy request.
REQUEST_SECONDS = 0.01
#: A wrong key costs its sender this long.
FAILED_LOGIN_SECONDS = 0.25
#: Unknown keys that are looked at, or whose senders wait, at a time: from one address, and in all.
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
        refused: called with the reason, ``login`` or ``rate``, of each request that comes too often.
    """

    def __init__(self, principals: Principals, limits: Rates, refused: Callable[[str], None]) -> None:
        self._principals, self._refused = principals, refused
        self._rate = Rate(limits.rate_limit, limits.rate_burst)
        self._heavy = Rate(limits.heavy_rate_limit, limits.heavy_rate_burst)
        self._guesses: dict[str, int] = {}
        self._looking: dict[str, asyncio.Event] = {}
        self._guessing = 0

    async def admit(self, request: Request, *, heavy: bool = False) -> Principal:
        """Who is asking; ``heavy`` requests are those that take much work, and have a rate of their own.

        Raises:
            Unauthenticated: when the key is nobody's.
            TooManyRequests: when the key, or whoever tries keys, comes too often.
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
        client = request.client.host if request.client else "unknown"
        # Whose key was good a moment ago does not wait behind those who guess.
        guess = not (key and self._principals.remembers(key))
        if guess:
            self._begin_guess(client)
        looked = self._looking.setdefault(key, asyncio.Event())
        try:
            if not key:
                raise Unauthenticated("an API key is needed: send Authorization: Bearer KEY")
            return await run_in_threadpool(self._principals.authenticate, key)
        except Unauthenticated:
            self._found(key, looked)
            log.warning("log-in failed", client=client)
            await asyncio.sleep(FAILED_LOGIN_SECONDS)
            raise
        finally:
            self._found(key, looked)
            if guess:
                self._end_guess(client)

    def _found(self, key: str, looked: asyncio.Event) -> None:
        """A key has been looked up: whoever waits for that goes on."""
        looked.set()
        if self._looking.get(key) is looked:
            del self._looking[key]

    def _begin_guess(self, client: str) -> None:
        """Beyond the bounds the key is not looked at: a refusal that tells a guess apart would be a faster guess."""
        mine = self._guesses.get(client, 0)
        if mine >= GUESSES_A_CLIENT or self._guessing >= GUESSES:
            self._refused("login")
            raise TooManyRequests("too many unknown keys are being tried: send again a little later")
        self._guesses[client] = mine + 1
        self._guessing += 1

    def _end_guess(self, client: str) -> None:
        self._guessing -= 1
        left = self._guesses[client] - 1
        if left:
            self._guesses[client] = left
        else:
            del self._guesses[client]
