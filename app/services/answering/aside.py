"""Threads beside the lanes for what takes long: one piece of work of each principal at a time, principals in turn."""

from __future__ import annotations

import threading
from collections import OrderedDict, deque
from collections.abc import Callable

#: How many pieces of work are done at a time, each of another principal.
THREADS = 4


class Aside:
    """Does costly work for the lanes.

    However much one principal has to be done, he has one thread, and another's work is begun after at most one piece of
    each other principal.
    """

    def __init__(self, name: str = "aside", threads: int = THREADS) -> None:
        #: What waits, by principal; whose turn is next comes first.
        self._waiting: OrderedDict[str, deque[Callable[[], None]]] = OrderedDict()
        self._busy: set[str] = set()
        self._changed = threading.Condition()
        self._ended = False
        self._threads = [threading.Thread(target=self._work, name=f"{name}-{n}", daemon=True) for n in range(threads)]

    def start(self) -> None:
        """Begin."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Begin nothing more; what is under way goes on to its end."""
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def do(self, actor: str, work: Callable[[], None]) -> None:
        """Have this done for a principal, behind what he has waiting. It must not raise. From any thread."""
        with self._changed:
            self._waiting.setdefault(actor, deque()).append(work)
            self._changed.notify()

    def _next(self) -> str | None:
        return next((actor for actor in self._waiting if actor not in self._busy), None)

    def _work(self) -> None:
        while True:
            with self._changed:
                while (actor := self._next()) is None and not self._ended:
                    self._changed.wait()
                if actor is None or self._ended:
                    return
                waiting = self._waiting[actor]
                work = waiting.popleft()
                if waiting:
                    self._waiting.move_to_end(actor)
                else:
                    del self._waiting[actor]
                self._busy.add(actor)
            try:
                work()
            finally:
                with self._changed:
                    self._busy.discard(actor)
                    self._changed.notify_all()
