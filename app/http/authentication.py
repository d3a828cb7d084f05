"""Who is asking, how often each key may ask, and how slowly wrong keys are refused."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Protocol
from weakref import WeakValueDictionary

import structlog
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect, Request

from app.http.clients import client_of
from app.http.headers import header
from app.http.replies import PRINCIPAL
from app.http.token_bucket import TokenBuckets
from app.services.errors import TooManyRequests, Unauthenticated
from app.services.principals import Principal, Principals

logger = structlog.get_logger("app.http")

#: Seconds of heavy work that count as one heavy request.
REQUEST_SECONDS = 0.01
#: Seconds after which a wrong key is refused.
FAILED_LOGIN_SECONDS = 0.25
#: Most keys that are checked, or wrong and waiting for their refusal, at a time: of one client, and in all. A key that
#: comes when there are as many is not checked before its turn. To refuse it at once would either tell guesses apart
#: faster, or turn good keys away (docs/decisions/0016-who-makes-room.md).
GUESSES_A_CLIENT = 32
GUESSES = 256


class RateLimits(Protocol):
    """The operator's limits on one key."""

    @property
    def rate_limit(self) -> float | None: ...
    @property
    def rate_burst(self) -> int: ...
    @property
    def heavy_rate_limit(self) -> float | None: ...
    @property
    def heavy_rate_burst(self) -> int: ...


class Authenticator:
    """Recognises principals by their keys, limits their rates, and slows down whoever guesses keys.

    For the event loop's thread alone.

    Args:
        principals: the principals there are.
        limits: requests that one key may send.
        refused: called with the reason, ``login`` or ``rate``, of each wrong key and each request that comes too often.
    """

    def __init__(self, principals: Principals, limits: RateLimits, refused: Callable[[str], None]) -> None:
        self._principals, self._refused = principals, refused
        self._requests = TokenBuckets(limits.rate_limit, limits.rate_burst)
        self._heavy_requests = TokenBuckets(limits.heavy_rate_limit, limits.heavy_rate_burst)
        #: Keys that are being checked; the event is set when that is done.
        self._checks: dict[str, asyncio.Event] = {}
        self._guesses = asyncio.Semaphore(GUESSES)
        #: By client; each is there while somebody uses it.
        self._guesses_of: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()

    async def authenticate(self, request: Request) -> Principal:
        """Who is asking. Counts the request.

        Args:
            request: whose ``Authorization`` has the key.

        Raises:
            Unauthenticated: when the key is nobody's.
            TooManyRequests: when the key comes too often.
        """
        principal = await self._recognise(request, _key_of(request))
        self.admit(request, principal)
        return principal

    async def log_in(self, request: Request, key: str) -> Principal:
        """The same of a key that a form brought.

        Raises:
            Unauthenticated: as :meth:`authenticate`.
            TooManyRequests: as :meth:`authenticate`.
        """
        principal = await self._recognise(request, key)
        self.admit(request, principal)
        return principal

    def admit(self, request: Request, principal: Principal) -> None:
        """Count the request of somebody who is known.

        Raises:
            TooManyRequests: when he asks too often.
        """
        self._consume(self._requests, principal)
        request.scope["counted"] = 1
        request.scope[PRINCIPAL] = principal.name

    def count_heavy(self, principal: Principal) -> None:
        """Count an authenticated request that takes much work against a rate of its own, too.

        Raises:
            TooManyRequests: when the key sends too many such.
        """
        self._consume(self._heavy_requests, principal)

    async def still_good(self, request: Request) -> bool:
        """Whether the key that a request was let in with is still its principal's; counts nothing."""
        key = _key_of(request)
        if self._principals.recall(key) is not None:
            return True
        try:
            await run_in_threadpool(self._principals.authenticate, key)
        except Unauthenticated:
            return False
        return True

    def count(self, request: Request, principal: Principal, requests: int) -> None:
        """Count an authenticated request as so many in all, unless it was counted as more already.

        Raises:
            TooManyRequests: when they are too many; what the request was counted as before stays counted.
        """
        counted = request.scope["counted"]
        if requests > counted:
            self._consume(self._requests, principal, requests, paid=counted)
            request.scope["counted"] = requests

    def count_work(self, name: str, seconds: float) -> None:
        """Count a principal's heavy work by its time: as so many requests, of which one was counted before."""
        self._heavy_requests.debit(name, max(0.0, seconds / REQUEST_SECONDS - 1))

    def _consume(self, buckets: TokenBuckets, principal: Principal, tokens: int = 1, paid: int = 0) -> None:
        try:
            buckets.consume(principal.name, tokens, paid)
        except TooManyRequests:
            self._refused("rate")
            raise

    async def _recognise(self, request: Request, key: str) -> Principal:
        known = self._principals.recall(key) if key else None
        if known is not None:
            return known
        # Many requests may come at once with a key that is new here: one of them checks it for all.
        check = self._checks.get(key)
        if check is not None:
            await check.wait()
            known = self._principals.recall(key)
            if known is not None:
                return known
        # A key that was good a moment ago does not wait behind guesses.
        guess = not (key and self._principals.remembers(key))
        check = self._checks.setdefault(key, asyncio.Event())
        host = request.client.host if request.client else "unknown"
        try:
            async with AsyncExitStack() as held:
                if guess:
                    client = client_of(host)
                    own = self._guesses_of.setdefault(client, asyncio.Semaphore(GUESSES_A_CLIENT))
                    await held.enter_async_context(_held(own, request))
                    await held.enter_async_context(_held(self._guesses, request))
                try:
                    if not key:
                        raise Unauthenticated("an API key is needed: send Authorization: Bearer KEY")
                    return await run_in_threadpool(self._principals.authenticate, key)
                except Unauthenticated:
                    self._checked(key, check)
                    self._refused("login")
                    logger.warning("log-in failed", client=host)
                    await asyncio.sleep(FAILED_LOGIN_SECONDS)
                    raise
        finally:
            self._checked(key, check)

    def _checked(self, key: str, check: asyncio.Event) -> None:
        """End a check, and wake the requests that wait for it."""
        check.set()
        if self._checks.get(key) is check:
            del self._checks[key]


def _key_of(request: Request) -> str:
    """The key that a request came with; empty where there is none."""
    scheme, _, key = (header(request, b"authorization") or "").partition(" ")
    return key if scheme.lower() == "bearer" else ""


@asynccontextmanager
async def _held(semaphore: asyncio.Semaphore, request: Request) -> AsyncIterator[None]:
    """Hold a semaphore, first come, first served. A client that has hung up does not wait for it; one that hangs up
    later holds it to the end.

    Raises:
        ClientDisconnect: when the client has hung up before its turn.
    """
    acquired = asyncio.ensure_future(semaphore.acquire())
    try:
        await asyncio.wait((acquired, request.scope["state"]["lost"]), return_when=asyncio.FIRST_COMPLETED)
        if not acquired.done():
            raise ClientDisconnect
        yield
    finally:
        if acquired.done():
            semaphore.release()
        else:
            acquired.cancel()
