"""Counts of elements: a private multiset."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Protocol

from app.spaces.counts import ArrayCounts, Contraction, Entries
from app.spaces.tensor import IntArray


class ElementCounts(Protocol):
    """A private multiset: how often each of some elements occurs, and how many there are in all."""

    @property
    def mass(self) -> int: ...

    @property
    def nbytes(self) -> int: ...

    def lookup(self, elements: Iterable[str]) -> IntArray:
        """The counts of elements in their order, 0 where absent."""


@dataclass(frozen=True, eq=False, repr=False)
class ElementsTensor(ArrayCounts):
    """A private multiset. It has no axes: its only contraction is its mass."""

    counts: ElementCounts
    shape: tuple[int, ...] = field(default=(), init=False)

    def __repr__(self) -> str:
        return "ElementsTensor()"

    @property
    def nbytes(self) -> int:
        return self.counts.nbytes

    kernels = {  # noqa: RUF012 - as the class they are never changed
        Contraction: lambda self, asked: self.counts.mass,
        Entries: lambda self, asked: self.counts.lookup(asked.positions),
    }
