"""Streams of events: how many each principal may have open, and their end when the server drains."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable

from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from app.services.errors import TooManyRequests

#: Streams that one principal may have open with one process.
MOST_EACH = 16
#: Seconds after which one that was refused may come again.
RETRY_SECONDS = 5
#: Milliseconds after which a client connects again when its stream has ended early, as when the server is replaced.
RECONNECT_MS = 2000


class Streams:
    """Counts open streams, and ends them when the server drains. For the event loop's thread alone.

    Args:
        refused: called with the reason of each that is refused.
    """

    def __init__(self, refused: Callable[[str], None]) -> None:
        self._refused = refused
        self._open: Counter[str] = Counter()
        self._draining = False
        #: What streams that wait for news wait for besides.
        self._pauses: set[asyncio.Future[None]] = set()

    def open(self, name: str, events: AsyncIterator[bytes]) -> StreamingResponse:
        """The reply that streams these events to a principal.

        Raises:
            TooManyRequests: when the principal has as many streams as one may have.
        """
        if self._open[name] >= MOST_EACH:
            self._refused("streams")
            raise TooManyRequests(
                f"{MOST_EACH} streams of events are open with this key: close one, or ask for the state itself",
                RETRY_SECONDS,
            )
        self._open[name] += 1
        return _EventStream(events, lambda: self._close(name))

    def _close(self, name: str) -> None:
        self._open[name] -= 1
        if not self._open[name]:
            del self._open[name]

    async def pause(self, seconds: float) -> bool:
        """Wait for so long, or until the server drains; whether the stream may go on."""
        if not self._draining:
            over = asyncio.get_running_loop().create_future()
            self._pauses.add(over)
            try:
                await asyncio.wait((over,), timeout=seconds)
            finally:
                self._pauses.discard(over)
        return not self._draining

    def drain(self) -> None:
        """The server drains: streams end with what they are at."""
        self._draining = True
        for over in self._pauses:
            if not over.done():
                over.set_result(None)


class _EventStream(StreamingResponse):
    """Server-sent events, which no proxy holds back."""

    def __init__(self, events: AsyncIterator[bytes], ended: Callable[[], None]) -> None:
        super().__init__(events, media_type="text/event-stream", headers={"X-Accel-Buffering": "no"})
        self._ended = ended

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Stream until the events or the connection end."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._ended()
