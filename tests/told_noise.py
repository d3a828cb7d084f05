"""Noise that a test tells in the place of what is drawn."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np


class Noise:
    """Noise that a test tells: what a round takes is a multiple of the scale, from ``script`` or else 0, a certain
    miss on uniform data. ``drawn`` counts the times it was taken; ``before`` is called ahead of each. A race
    compares once.
    """

    def __init__(self) -> None:
        self.script: deque[float] = deque()
        self.drawn = 0
        self.before: Callable[[], None] = lambda: None

    def laplace(self, scale: Any, ahead: int = 1024) -> _Source:
        return _Source(self, scale)

    def gaussian(self, scale: Any, ahead: int = 1024) -> _Source:
        return _Source(self, scale)

    def flips(self, probability: Any) -> _Flips:
        return _Flips(self)

    def poisson(self, mean: Any, cut: int) -> _Once:
        return _Once()


class _Source:
    low = False

    def __init__(self, noise: Noise, scale: Any) -> None:
        self._noise, self._scale = noise, scale

    def take(self, n: int) -> Any:
        self._noise.before()
        self._noise.drawn += 1
        script = self._noise.script
        return np.full(n, round((script.popleft() if script else 0) * self._scale), np.int64)

    def refill(self) -> bool:
        return False


class _Flips:
    """Turns over nothing, or all where the script has another number than 0."""

    def __init__(self, noise: Noise) -> None:
        self._noise = noise

    def take(self, n: int) -> Any:
        self._noise.before()
        self._noise.drawn += 1
        script = self._noise.script
        return np.full(n, bool(script and script.popleft()), np.uint8)


class _Once:
    def take(self) -> int:
        return 1
