"""Rounds of a release as they are played: each measures what those before it led to."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from fractions import Fraction
from typing import Protocol, TypeAlias

from app.measurements.record import Measurement, Purchase
from app.measurements.strategy import Strategy
from app.spaces.tensor import IntArray

#: The purchases that are due, one after another: each is answered by what was released for it.
Play: TypeAlias = Generator[Purchase[Strategy], Measurement[Strategy], None]
#: The exact values of strategies.
Exact: TypeAlias = Callable[[Sequence[Strategy]], Sequence[IntArray]]


class Choose(Protocol):
    """The exponential mechanism."""

    def __call__(self, scores: IntArray, scale: Fraction) -> int:
        """An index, with probability proportional to exp(score/scale)."""


#: Begins a play for whoever has the private data. Exact values, and scores that are made of them, go nowhere else.
Begin: TypeAlias = Callable[[Exact, Choose], Play]
