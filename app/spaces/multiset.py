"""Multisets of strings: an unbounded universe, so there are no arrays; queries weigh the few elements they name.

An element is a string of any length, compared by its Unicode code points without normalisation; elements that the data
does not hold count 0. Everything that is said of other spaces' cells holds with "positions" read as elements.
"""

from __future__ import annotations

from dataclasses import dataclass

from app.declarations.spec import DEFAULT_CAPACITY, MultisetSpec
from app.spaces.space import Extent, Space


@dataclass(frozen=True)
class MultisetSpace(Space):
    """The universe of all strings; neighbours differ in one occurrence of one element."""

    @property
    def extent(self) -> Extent:
        return "unbounded"


def multiset_space(spec: MultisetSpec) -> MultisetSpace:
    """The space of a declared multiset."""
    return MultisetSpace(kind="multiset", shape=(), names=(), capacity=spec.capacity or DEFAULT_CAPACITY)
