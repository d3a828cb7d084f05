"""Multisets of strings: an unbounded universe, so there are no arrays; queries weigh the few elements they name.

An element is a string of any length, compared by its Unicode code points without normalisation; elements that the data
does not hold count 0. Everything that is said of other spaces' cells holds with "positions" read as elements.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from app.declarations.spec import DEFAULT_CAPACITY, MultisetSpec
from app.spaces.space import Extent, Space
from app.spaces.tensor import Array, Axes, IntArray


class ElementCounts(Protocol):
    """A private multiset: how often each of some elements occurs, and how many there are in all."""

    @property
    def mass(self) -> int: ...

    @property
    def nbytes(self) -> int: ...

    def lookup(self, elements: Iterable[str]) -> IntArray:
        """The counts of elements in their order, 0 where absent."""


@dataclass(frozen=True, eq=False)
class ElementsTensor:
    """A private multiset, ready for exact contraction. It has no axes: its only contraction is its mass."""

    counts: ElementCounts

    def __repr__(self) -> str:
        return "ElementsTensor()"

    @property
    def shape(self) -> tuple[int, ...]:
        return ()

    @property
    def nbytes(self) -> int:
        return self.counts.nbytes

    @property
    def diagonal(self) -> None:
        return None

    def contract(self, axes: Axes) -> int:
        assert not axes
        return self.counts.mass

    def marginal(self, axes: tuple[int, ...]) -> Array:
        """The mass: there are no axes."""
        return np.asarray(self.contract(()))

    def gather(self, positions: Array) -> Array:
        return self.counts.lookup(positions)

    def inner(self, weights: Array, bits: int) -> int:
        raise TypeError("an unbounded universe has no array of weights")


@dataclass(frozen=True)
class MultisetSpace(Space):
    """The universe of all strings; neighbours differ in one occurrence of one element."""

    @property
    def extent(self) -> Extent:
        return "unbounded"


def multiset_space(spec: MultisetSpec) -> MultisetSpace:
    """The space of a declared multiset."""
    return MultisetSpace(kind="multiset", shape=(), names=(), capacity=spec.capacity or DEFAULT_CAPACITY)
