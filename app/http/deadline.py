"""A fixed answering time: replies are held back until a moment that is set when the request comes."""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
import time
from collections.abc import Callable


class Deadline:
    """Sends replies a fixed time after their requests, however long the work took.

    A thread keeps the time. A timer of the event loop would not do: the loop counts whole milliseconds from whenever it
    was last woken, so that the fraction of a millisecond at which the work was done would show in the reply's time.

    Args:
        milliseconds: from a request to its reply; None sends replies when they are ready.
        late: called for each reply that was not ready in time, which then goes at once.
    """

    def __init__(self, milliseconds: int | None, late: Callable[[], None]) -> None:
        self._seconds = None if milliseconds is None else milliseconds / 1000
        self._late = late
        self._moments: queue.SimpleQueue[tuple[float, asyncio.AbstractEventLoop, asyncio.Future[None]]] = (
            queue.SimpleQueue()
        )
        self._clock: threading.Thread | None = None

    def set(self) -> asyncio.Future[None] | None:
        """The moment for the reply to a request that comes now; None without a deadline. Call it in the event loop."""
        if self._seconds is None:
            return None
        if self._clock is None:
            self._clock = threading.Thread(target=self._run, name="deadline", daemon=True)
            self._clock.start()
        loop = asyncio.get_running_loop()
        moment = loop.create_future()
        self._moments.put((time.monotonic() + self._seconds, loop, moment))
        return moment

    async def keep(self, moment: asyncio.Future[None] | None) -> None:
        """Wait for a moment of :meth:`set`. One that has passed counts as late."""
        if moment is None:
            return
        if moment.done():
            self._late()
        await moment

    def _run(self) -> None:
        # All replies wait equally long, so moments come in the order in which they were set.
        while True:
            when, loop, moment = self._moments.get()
            time.sleep(max(0.0, when - time.monotonic()))
            with contextlib.suppress(RuntimeError):  # the loop is closed, and nobody waits
                loop.call_soon_threadsafe(_arrived, moment)


def _arrived(moment: asyncio.Future[None]) -> None:
    if not moment.done():
        moment.set_result(None)
