"""Spaces of two sides: nodes, or rows and columns, that a query names."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from pydantic import StrictInt, StrictStr

from app.spaces.errors import InvalidQuery
from app.spaces.space import Space
from app.spaces.tensor import IntArray, Members

Node = StrictInt | StrictStr
#: Of an axis this many times as long as there are positions these are sorted, not marked.
_SCATTERED = 64


@dataclass(frozen=True)
class SidedSpace(Space):
    """The universe of a graph or a matrix."""

    @property
    def sides(self) -> tuple[int, int]:
        """How many nodes, or rows and columns, there are on each."""
        rows, columns = self.shape
        return rows, columns

    @abstractmethod
    def members(self, asked: Literal["all"] | Sequence[Node], side: int, name: str) -> Members:
        """The distinct numbers of nodes of a side, as they are asked for, and the name that a refusal begins with.

        Raises:
            InvalidQuery: when one is unknown.
        """

    def called(self, side: int, node: int) -> str:
        """A node's name in a refusal."""
        return str(node)


def axis_members(asked: Literal["all"] | Sequence[Node], length: int, what: str) -> Members:
    """Distinct positions along an axis without labels."""
    if asked == "all":
        return slice(0, length)
    refusal = InvalidQuery(f"{what} are the integers 0..{length - 1}")
    # Types first: of a text among numbers NumPy would make texts of them all.
    if not set(map(type, asked)) <= {int}:
        raise refusal
    try:
        numbers = np.array(asked, dtype=np.int64)
    except OverflowError:
        raise refusal from None
    if len(numbers) and not 0 <= numbers.min() <= numbers.max() < length:
        raise refusal
    return distinct(numbers, length)


def distinct(numbers: IntArray, length: int) -> IntArray:
    """Sorted distinct positions along an axis of so many."""
    if len(numbers) * _SCATTERED < length:
        return np.unique(numbers)
    # Many of them are marked faster than they are sorted.
    marked = np.zeros(length, np.bool_)
    marked[numbers] = True
    return np.flatnonzero(marked)
