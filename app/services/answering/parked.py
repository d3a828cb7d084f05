"""Waiting for numbers that are counted where the records are: an engine may take minutes, and nobody waits with it.

A request that lacks such numbers is parked outside of its lane: no row is held for it, and no noise was drawn. What
else is asked of its session waits behind it. When the numbers are counted it is considered anew.

What an engine's time tells is told in whole ticks: whoever waited goes on a whole number of them after he began to
wait, whatever became of it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TypeVar

import structlog

from app.declarations.errors import CuratorError
from app.services.answering.aside import Aside
from app.services.errors import Unavailable
from app.spaces.counts import NotCounted

T = TypeVar("T")
logger = structlog.get_logger(__name__)

#: How often the same request waits: what is due may have changed meanwhile, and then needs other numbers.
TRIES = 3


class Parked:
    """Has numbers counted for whoever waits for them, principals in turn.

    Args:
        queries: how many are counted at a time.
        tick_seconds: of what an engine's time may tell.
    """

    def __init__(self, queries: int, tick_seconds: float) -> None:
        self._aside, self._tick = Aside("source", queries), tick_seconds

    def start(self) -> None:
        """Begin."""
        self._aside.start()

    def stop(self) -> None:
        """Begin nothing more."""
        self._aside.stop()

    def wait(self, actor: str, count: Callable[[], None], back: Callable[[CuratorError | None], None]) -> None:
        """Have numbers counted for a principal. Then ``back`` is called, in another thread, with what they cannot be
        counted for.
        """
        began = time.monotonic()

        def work() -> None:
            error = _failure(count)
            # The thread is for others: nobody's counting waits for another's tick.
            later = threading.Timer(self._left(began), back, [error])
            later.daemon = True
            later.start()

        self._aside.do(actor, work)

    def counted(self, work: Callable[[], T]) -> T:
        """The outcome of work that may lack numbers: it is done anew when they are counted, in the thread of whoever
        asks for it, who holds nothing that others wait for.

        Raises:
            Unavailable: when numbers cannot be counted, or others are needed each time.
        """
        for _ in range(TRIES):
            try:
                return work()
            except NotCounted as lacking:
                began, error = time.monotonic(), _failure(lacking.count)
            time.sleep(self._left(began))
            if error is not None:
                raise error
        raise needs_others()

    def _left(self, began: float) -> float:
        """Seconds until a whole number of ticks has passed."""
        return self._tick - (time.monotonic() - began) % self._tick


def needs_others() -> Unavailable:
    """The refusal of what needed other numbers each time that some were counted."""
    return Unavailable("other numbers were needed each time that some were counted: send the request again")


def _failure(count: Callable[[], None]) -> CuratorError | None:
    """Why numbers are not counted; None once they are."""
    try:
        count()
    except CuratorError as error:
        return error
    except Exception as error:  # noqa: BLE001 - its words may quote records
        logger.error("a source could not be counted", error=type(error).__name__)
        return Unavailable("the data set's records could not be counted: send the request again later")
    return None
