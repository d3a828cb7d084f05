"""Noise in the place of the system's: told by a test, drawn from a seed, or with a fault that audits must find."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from app.bootstrap.noise import SystemNoise
from app.privacy.noise import NoiseBlock


def nothing(_scale: float) -> int:
    """No noise."""
    return 0


@dataclass
class Noise:
    """Noise that a test tells: nothing, a certain miss on uniform data, where it tells no other. A race compares once.

    Attributes:
        script: multiples of the scale, one for all that is taken at once; other numbers than 0 turn bits over.
        draw: gives each value in grid units, from the scale, where the script is empty; bits likewise.
        before: called ahead of each time that noise is taken.
        drawn: how often it was taken.
    """

    draw: Callable[[float], int] = nothing
    script: deque[float] = field(default_factory=deque)
    before: Callable[[], None] = lambda: None
    drawn: int = 0

    def laplace(self, scale: Any, ahead: int = 1024) -> Source:
        return Source(lambda n: self._told(n, scale))

    def gaussian(self, scale: Any, ahead: int = 1024) -> Source:
        return Source(lambda n: self._told(n, scale))

    def flips(self, probability: Any) -> Source:
        return Source(lambda n: (self._told(n, probability, bits=True) != 0).astype(np.uint8))

    def poisson(self, mean: Any, cut: int) -> Once:
        return Once()

    def choose(self, scores: Any, scale: Any) -> int:
        """The greatest score."""
        return int(np.argmax(scores))

    def _told(self, n: int, scale: Any, *, bits: bool = False) -> npt.NDArray[np.int64]:
        self.before()
        self.drawn += 1
        if self.script:
            told = self.script.popleft()
            return np.full(n, bool(told) if bits else round(told * scale), np.int64)
        if self.draw is nothing:
            return np.zeros(n, np.int64)
        return np.array([self.draw(float(scale)) for _ in range(n)], np.int64)


@dataclass
class Source:
    """What a port gives of one law: values are taken as they are needed, none is drawn ahead."""

    take: Callable[[int], Any]
    low: bool = False

    def refill(self) -> bool:
        return False


class Once:
    """Counts of a race with one comparison."""

    def take(self) -> int:
        return 1


class Seeded(Noise):
    """Noise of the laws that are asked for from one generator, in grid units, in the order in which it is taken.

    A test may put another generator into ``random``, also for sources that are there.
    """

    def __init__(self, random: np.random.Generator) -> None:
        super().__init__()
        self.random = random

    def laplace(self, scale: Any, ahead: int = 1024) -> Source:
        return Source(lambda n: np.rint(self.random.laplace(0, float(scale), n)).astype(np.int64))

    def gaussian(self, scale: Any, ahead: int = 1024) -> Source:
        return Source(lambda n: np.rint(self.random.normal(0, float(scale), n)).astype(np.int64))

    def flips(self, probability: Any) -> Source:
        return Source(lambda n: (self.random.random(n) < float(probability)).astype(np.uint8))

    def choose(self, scores: Any, scale: Any) -> int:
        return int(np.argmax(np.asarray(scores) / float(scale) + self.random.gumbel(size=len(scores))))


class Exchanged:
    """The noise of a service that many cases share: the system's, or what one of them plants. A source that a session
    has taken stays with it."""

    def __init__(self) -> None:
        self._now: Any = SystemNoise()

    def __getattr__(self, law: str) -> Any:
        return getattr(self._now, law)

    @contextlib.contextmanager
    def planted(self, noise: Any) -> Iterator[None]:
        """Other noise, while the context lasts."""
        before, self._now = self._now, noise
        try:
            yield
        finally:
            self._now = before


class Scaled(SystemNoise):
    """Noise of another scale than the one asked for: a planted fault, but for a factor of 1.

    ``most``: no more values are drawn ahead, where a test has many sessions that take few each.
    """

    def __init__(self, factor: Fraction, most: int = 1024) -> None:
        self._factor, self._most = factor, most

    def laplace(self, scale: Any, ahead: int = 1024) -> NoiseBlock:
        return super().laplace(Fraction(scale) * self._factor, min(ahead, self._most))

    def gaussian(self, scale: Any, ahead: int = 1024) -> NoiseBlock:
        return super().gaussian(Fraction(scale) * self._factor, min(ahead, self._most))


class Asked(Noise):
    """No noise, and which it should have been: an audit that sees what is released without noise, and knows that the
    service draws what it asks for (:mod:`tests.sessions.test_direct_audit`), may draw that as often as it likes.

    Attributes:
        asked: law, scale in grid units and number of values, of each time that noise is taken.
    """

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[tuple[str, Any, int]] = []

    def laplace(self, scale: Any, ahead: int = 1024) -> Source:
        return Source(lambda n: self._noted("laplace", scale, n))

    def gaussian(self, scale: Any, ahead: int = 1024) -> Source:
        return Source(lambda n: self._noted("gaussian", scale, n))

    def _noted(self, law: str, scale: Any, n: int) -> npt.NDArray[np.int64]:
        self.asked.append((law, scale, n))
        return np.zeros(n, np.int64)


def drawn(law: str, scale: Any, number: int) -> npt.NDArray[np.int64]:
    """So many values of the service's noise."""
    values: npt.NDArray[np.int64] = getattr(SystemNoise(), law)(scale, number).take(number)
    return values
