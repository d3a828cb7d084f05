"""Waiting for numbers that are counted where the records are: an engine may take minutes, and nobody waits with it.

A request that lacks such numbers is parked outside of its lane: no row is held for it, and no noise was drawn. What
else is asked of its session waits behind it. When the numbers are counted it is considered anew.

What an engine's time tells is told in whole ticks: whoever waited goes on as many seconds after he began to wait as the
data set declares, and where that was too short, or nothing is declared, a whole number of ticks after it; whatever
became of it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Protocol

import structlog

from app.declarations.errors import CuratorError
from app.services.answering.aside import Aside
from app.services.errors import Unavailable
from app.services.tracing import UNTRACED, Trace, Tracer
from app.spaces.counts import NotCounted

logger = structlog.get_logger(__name__)

#: How often the same request waits: what is due may have changed meanwhile, and then needs other numbers.
TRIES = 3


class Meter(Protocol):
    """Counts what may be counted: how countings ended, and never how long they took."""

    def tallied(self, outcome: str) -> None: ...

    def late_source(self) -> None: ...


class Parked:
    """Has numbers counted for whoever waits for them, principals in turn.

    Engines outside count apart from one another and from this machine: one that has fallen silent keeps nobody waiting
    for another.

    Args:
        queries: how many are counted at a time, here and by each engine outside.
        tick_seconds: of what an engine's time may tell.
        meter: told how each counting ended.
        tracer: told when whoever waited went on.
    """

    def __init__(self, queries: int, tick_seconds: float, meter: Meter, tracer: Tracer = UNTRACED) -> None:
        self._queries, self._tick, self._meter, self._tracer = queries, tick_seconds, meter, tracer
        self._asides: dict[str, Aside] = {}
        self._stopped, self._lock = False, threading.Lock()
        self._waiting: set[object] = set()

    def __len__(self) -> int:
        """How many requests wait."""
        return len(self._waiting)

    def stop(self) -> None:
        """Begin nothing more."""
        with self._lock:
            self._stopped = True
            for aside in self._asides.values():
                aside.stop()

    def _at(self, place: str) -> Aside:
        """Who counts at a place."""
        with self._lock:
            found = self._asides.get(place)
            if found is None:
                found = self._asides[place] = Aside("source", self._queries)
                found.start()
                if self._stopped:
                    found.stop()
            return found

    def wait(
        self,
        actor: str,
        lacking: NotCounted,
        back: Callable[[CuratorError | None], None],
        trace: Trace | None = None,
    ) -> None:
        """Have numbers counted that a principal's request lacks. Then ``back`` is called, in another thread, with why
        they cannot be counted, if so.
        """
        began, came, mark = time.monotonic(), time.time(), object()

        def end(error: CuratorError | None) -> None:
            self._waiting.discard(mark)
            if trace is not None:
                # When the tick is over: no sooner shows when the engine was done.
                self._tracer.part("parked", trace, came, time.time(), outcome=_outcome(error))
            back(error)

        def work() -> None:
            error = self._failure(lacking.count)
            # The thread is for others: nobody's counting waits for another's tick.
            later = threading.Timer(self._left(began, lacking.seconds), end, [error])
            later.daemon = True
            later.start()

        self._waiting.add(mark)
        self._at(lacking.place).do(actor, work)

    def _left(self, began: float, declared: float) -> float:
        """Seconds until as many have passed as are declared, or until a whole number of ticks has."""
        passed = time.monotonic() - began
        if passed < declared:
            return declared - passed
        if declared:
            self._meter.late_source()
        return self._tick - passed % self._tick

    def _failure(self, count: Callable[[], None]) -> CuratorError | None:
        """Why numbers are not counted; None once they are."""
        error: CuratorError | None = None
        try:
            count()
        except CuratorError as found:
            error = found
        except Exception as found:  # noqa: BLE001 - its words may quote records
            logger.error("a source could not be counted", error=type(found).__name__)
            error = Unavailable("the data set's records could not be counted: send the request again later")
        self._meter.tallied(_outcome(error))
        return error


def _outcome(error: CuratorError | None) -> str:
    return "counted" if error is None else error.code


def needs_others() -> Unavailable:
    """The refusal of what needed other numbers each time that some were counted."""
    return Unavailable("other numbers were needed each time that some were counted: send the request again")
