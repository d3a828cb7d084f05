"""A space: what is public of the universe that a data set's vector lives on.

``capacity`` bounds the sum of absolute entries (enforced when data is registered); every exactness argument rests on
it:

- a query with ``r`` weighted axes keeps ``b`` bits an axis with ``capacity * 2^(data_bits + b*r) < 2^62``, so
  <f, x> and every partial sum of it is an exact 64-bit integer;
- answers are released on one grid ``2^-answer_bits`` with ``capacity * 2^answer_bits <= 2^46``, so that the
  float64 value of a hypothesis' answer is good to far less than a grid unit.

An exact value on a finer grid is rounded half up to the answer grid. That keeps the sensitivity where gamma is a
whole number of grid units: rounding maps two numbers at most that many units apart to two integers at most that
many units apart. Where gamma is none (a matrix on a grid finer than its answers'), it is rounded up to one.
"""

from __future__ import annotations

import math
from abc import ABC
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Literal, Self, overload

import numpy as np
from scipy.sparse import csr_array

from app.declarations.errors import InvalidDataset
from app.spaces.dense import CountsTensor
from app.spaces.errors import InvalidQuery
from app.spaces.query import Query
from app.spaces.rounding import bounding, rounding_error
from app.spaces.sparse import SparseTensor
from app.spaces.tensor import Array, IntArray

#: Bits of the grid that weights and answers live on, where capacity leaves room for them.
DEFAULT_BITS = 20
#: Bits that the product of all weighted axes keeps at most: its weights stay exact in float64 and in JSON.
FACTOR_BITS = 53
#: In larger universes cells have no positions, which are plain 64-bit integers with room to spare: tables are asked by
#: attributes there, graphs and matrices are refused.
MAX_CELLS = 2**40
#: Universes from here on are never expanded: an array of them takes 32 GiB and more.
MAX_DENSE_CELLS = 2**32
#: What writing out a value takes: a few arrays of 64-bit numbers.
LOOKED_AT_BYTES = 64
#: How much of a universe can be had at once: ``dense`` (an array of all cells), ``addressable`` (each cell has a
#: position, but all of them are too many for an array), ``unbounded`` (there are no positions).
Extent = Literal["dense", "addressable", "unbounded"]


@dataclass(frozen=True)
class Space(ABC):
    """Shape, neighbours and capacity of a data set's vector.

    Attributes:
        kind: of the data set.
        shape: cells along each axis; empty where the universe is unbounded.
        names: of the axes.
        capacity: largest sum of absolute entries, in counts.
        data_bits: data are integers in units of ``2^-data_bits``.
        unit: gamma in counts, the L1-distance of neighbouring data sets.
        symmetric: of undirected graphs. Arrays are symmetric with zero diagonal, the universe is the pairs i < j.
    """

    kind: str
    shape: tuple[int, ...]
    names: tuple[str, ...]
    capacity: int
    data_bits: int = 0
    unit: Fraction = Fraction(1)
    symmetric: bool = False

    @property
    def extent(self) -> Extent:
        """How much of the universe can be had at once; sizes mean something only where it is not unbounded."""
        return "dense" if self.cells <= MAX_DENSE_CELLS else "addressable"

    @property
    def signed(self) -> bool:
        """Whether entries may be negative, so that the data is no mass spread over cells."""
        return False

    @property
    def largest(self) -> Fraction | None:
        """Largest absolute entry that the data can have, in counts; None where only the mass bounds it."""
        return None

    @property
    def sensitivity(self) -> Fraction:
        """By how much answers on neighbouring data can differ, in counts: ``unit``, rounded up to the answer grid.

        Exact values on a finer grid are rounded to the answer grid, which moves two of them at most
        ``ceil(unit * 2^answer_bits)`` grid units apart.
        """
        return Fraction(math.ceil(self.unit * (1 << self.answer_bits)), 1 << self.answer_bits)

    @property
    def dense_bytes(self) -> int:
        """Bytes of one float64 array over the universe; 0 where there is none."""
        return 0 if self.extent == "unbounded" else 8 * self.cells

    def norm2sq_bound(self, mass: float | None) -> float | None:
        """The best known upper bound on the sum of squared entries, in counts; ``mass`` bounds the sum of entries.

        With entries up to M it is at most ``M * mass`` and ``M^2 * size``, else at most ``mass^2``.
        """
        if self.largest is None:
            return None if mass is None else mass**2
        most = float(self.largest)
        every = most**2 * self.size
        return every if mass is None or self.signed else min(every, most * mass)

    @property
    def size(self) -> int:
        """Number of cells of the universe."""
        if self.symmetric:
            return self.shape[0] * (self.shape[0] - 1) // 2
        return math.prod(self.shape)

    @property
    def cells(self) -> int:
        """Number of entries of a dense array of the space's shape."""
        return math.prod(self.shape)

    @property
    def loops(self) -> bool:
        """Of two sides, whether entries on the diagonal hold data; of a graph between nodes of one set they do not."""
        return self.kind != "graph"

    @property
    def capacity_units(self) -> int:
        """Largest sum of absolute entries of a stored array, in data units."""
        return (self.capacity << self.data_bits) * (2 if self.symmetric else 1)

    @property
    def answer_bits(self) -> int:
        """Answers are whole multiples of 2^-answer_bits."""
        return max(0, min(DEFAULT_BITS, 46 - self.capacity.bit_length()))

    def axis_bits(self, weighted: int) -> int:
        """Bits each of ``weighted`` axes keeps, so that every sum is an exact 64-bit integer.

        Raises:
            InvalidQuery: when not even one bit an axis is left.
        """
        most = min(FACTOR_BITS, 61 - self.capacity_units.bit_length())
        bits = min(DEFAULT_BITS, most // max(weighted, 1))
        if bits < 1:
            raise InvalidQuery(
                f"{weighted} weighted axes leave no exact grid at this capacity: use 0/1 weights on some of them"
            )
        return bits

    @property
    def most_rounding(self) -> float:
        """The most that a query's :attr:`~app.spaces.query.Query.rounding` can be: every axis weighted, each weight
        half a unit off.

        A compiled query does not show an axis whose weights were all rounded to 1, so this is a bound for every query
        of the space and not the query's own.
        """
        most = 0.0
        for weighted in range(1, max(len(self.shape), 1) + 1):
            try:
                bits = self.axis_bits(weighted)
            except InvalidQuery:
                break
            # Weights of pairs take each side twice and the product of both twice again, itself rounded up.
            units = 6.0 if self.symmetric and weighted == 2 else weighted / 2
            most = max(most, bounding(rounding_error(units, bits)))
        return most

    def with_capacity(self, capacity: int) -> Self:
        """The same space under another bound on its mass."""
        return replace(self, capacity=capacity)

    def tensor(self, array: Array | csr_array) -> CountsTensor | SparseTensor:
        """Private integers of this space, ready for exact contraction."""
        if isinstance(array, np.ndarray):
            return CountsTensor(array, wide=self.capacity_units << self.axis_bits(1) >= 2**53)
        return SparseTensor(array)

    @overload
    def to_answer_grid(self, exact: int, query: Query) -> int: ...

    @overload
    def to_answer_grid(self, exact: IntArray, query: Query) -> IntArray: ...

    def to_answer_grid(self, exact: int | IntArray, query: Query) -> int | IntArray:
        """Exact values in the query's own units, on the answer grid (rounded half up)."""
        shift = query.grid_bits + self.data_bits - self.answer_bits
        if shift <= 0:
            return exact << -shift
        return (exact + (1 << (shift - 1))) >> shift


def check_cells(shape: tuple[int, ...]) -> None:
    """Refuse a universe too large to address.

    Raises:
        InvalidDataset: naming the size.
    """
    if math.prod(shape) > MAX_CELLS:
        raise InvalidDataset(
            f"the universe has {math.prod(shape):,} cells; at most {MAX_CELLS:,} can be addressed: declare fewer "
            "attributes or coarser bins",
            cells=math.prod(shape),
        )
