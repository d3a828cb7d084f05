"""Matrices: real entries in declared bounds, on a declared grid; neighbours differ in one entry.

One entry may move from one bound to the other, so gamma is ``upper - lower``. Entries may be negative: every bound
that exactness rests on is therefore on the sum of absolute entries, at most ``cells * max(|lower|, |upper|)``, which
the declaration alone fixes. (A sum of signed entries is bounded by it in any order; so is each of its partial sums.)

What is public of the data is its shape and its bounds, nothing else. The number of records is the number of cells,
and says nothing of the sum of entries. A construction that spreads a mass (mw) needs that sum: it is bought, with
sensitivity gamma, and only where no entry may be negative.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from app.declarations.errors import InvalidDataset
from app.declarations.spec import MatrixSpec
from app.spaces.sided import Node, SidedSpace, axis_members
from app.spaces.space import check_cells
from app.spaces.tensor import Members

#: A capacity beyond this many bits leaves a float64 none to spare for the hypothesis' answers.
MAX_CAPACITY_BITS = 46
#: A capacity beyond this many bits, in data units, leaves 64-bit sums none for the weights of two axes.
MAX_UNITS_BITS = 59


@dataclass(frozen=True)
class MatrixSpace(SidedSpace):
    """The universe of a matrix, one cell an entry. A cut is the sum of a block; its mean is a rank-one query."""

    lower: Fraction = Fraction(0)
    upper: Fraction = Fraction(1)

    @property
    def signed(self) -> bool:
        """Whether the declared bounds let an entry be negative."""
        return self.lower < 0

    @property
    def largest(self) -> Fraction:
        """The larger of the absolute bounds."""
        return max(abs(self.lower), abs(self.upper))

    def members(self, asked: Literal["all"] | Sequence[Node], side: int, name: str) -> Members:
        return axis_members(asked, self.shape[side], f"{name}: {('rows', 'columns')[side]}")


def matrix_space(spec: MatrixSpec) -> MatrixSpace:
    """The space of a declared matrix.

    Raises:
        InvalidDataset: when its universe cannot be addressed, or its sums would leave exact arithmetic.
    """
    shape = (spec.rows, spec.columns)
    check_cells(shape)
    lower, upper = Fraction(spec.lower), Fraction(spec.upper)
    capacity = max(1, math.ceil(spec.rows * spec.columns * max(abs(lower), abs(upper))))
    if capacity.bit_length() > MAX_CAPACITY_BITS or (capacity << spec.data_bits).bit_length() > MAX_UNITS_BITS:
        raise InvalidDataset(
            f"entries up to {float(max(abs(lower), abs(upper))):g} in {math.prod(shape):,} cells on a grid of "
            f"2^-{spec.data_bits} pass what can be summed exactly: declare narrower bounds or a coarser grid"
        )
    return MatrixSpace(
        kind="matrix",
        shape=shape,
        names=("row", "column"),
        capacity=capacity,
        data_bits=spec.data_bits,
        unit=upper - lower,
        lower=lower,
        upper=upper,
    )
