"""A cache of recent results, in so much memory and no more."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

Value = TypeVar("Value")


class Kept(Generic[Value]):
    """The values that were asked for last, by key; for all threads.

    Args:
        most: bytes that they take at most together; the last one is kept whatever it takes.
        count: and so many of them.
    """

    def __init__(self, most: int, count: int) -> None:
        self._most, self._count = most, count
        self._values: OrderedDict[Hashable, tuple[Value, int]] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: Hashable, make: Callable[[], Value], nbytes: Callable[[Value], int]) -> Value:
        """The value of a key, made where it is not kept. Two threads may make one at the same time.

        Args:
            key: tells values apart.
            make: finds the value.
            nbytes: about what it takes in memory, with its key.
        """
        with self._lock:
            known = self._values.get(key)
            if known is not None:
                self._values.move_to_end(key)
                return known[0]
        made = make()
        with self._lock:
            self._values[key] = made, nbytes(made)
            while len(self._values) > self._count or (len(self._values) > 1 and self._taken() > self._most):
                self._values.popitem(last=False)
        return made

    def held(self) -> int:
        """About what all of them take in memory."""
        with self._lock:
            return self._taken()

    def clear(self) -> None:
        """Keep none of them."""
        with self._lock:
            self._values.clear()

    def _taken(self) -> int:
        return sum(nbytes for _, nbytes in self._values.values())
