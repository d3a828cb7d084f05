"""Measurements of products of a graph's or a matrix's cells with vectors of public weights, each released once.

With A the matrix of the cells (see :mod:`.edges`) these are ``A v``, a value for each row; ``u' A``, a value for each
column; or the sum over all cells of ``u_i A_ij v_j``, one value. Of an undirected graph A is symmetric and has each
pair twice; the sum over all cells has it once, and u is v.

Weights are whole units of 2^-bits from -1 to 1. So where neighbours differ by gamma in the L1 norm over the cells, the
values of ``A v`` or ``u' A`` move by at most gamma in the L2 norm, of an undirected graph by at most
``sqrt(2) gamma``, as a pair is in two of them; and the sum moves by at most gamma (docs/privacy.md, 9.7).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from app.measurements.noise import Law
from app.measurements.packing import packed_numbers, unpacked_numbers
from app.measurements.pricing import Adjacency, Events, answer
from app.measurements.strategies.edges import Edges
from app.measurements.strategy import Strategy
from app.spaces.counts import LineSums, Tally
from app.spaces.space import Space
from app.spaces.tensor import IntArray

#: Weights have at most so many bits: a sum with two of them is still counted in 64.
MOST_BITS = 20


@dataclass(frozen=True, eq=False)
class Products(Strategy):
    """The strategy of products with vectors.

    Attributes:
        edges: the cells.
        bits: weights are whole units of 2^-bits.
        left: u, a weight for each row; None where rows are told apart.
        right: v, a weight for each column; None where columns are told apart. Of an undirected graph it is never None.

    Raises:
        ValueError: when it is not of this form.
    """

    edges: Edges
    bits: int
    left: IntArray | None
    right: IntArray | None
    tag = "products"

    def __post_init__(self) -> None:
        if type(self.bits) is not int or not 0 <= self.bits <= MOST_BITS:
            raise ValueError(f"weights have 0 to {MOST_BITS} bits")
        if self.left is None and self.right is None:
            raise ValueError("a product has weights")
        for weights, length in zip((self.left, self.right), self.edges.shape, strict=True):
            if weights is not None and (weights.dtype != np.int64 or weights.shape != (length,)):
                raise ValueError("there is a whole weight for each row, or for each column")
            # Not by absolute values: that of the least 64-bit integer is none.
            if weights is not None and not -(1 << self.bits) <= weights.min() <= weights.max() <= 1 << self.bits:
                raise ValueError("weights lie from -1 to 1")
        if self.edges.kind == "pairs" and (
            self.right is None or (self.left is not None and not np.array_equal(self.left, self.right))
        ):
            raise ValueError("either end of a pair has the same weights")

    @property
    def whole(self) -> bool:
        """Whether it is the one sum over all cells."""
        return self.left is not None and self.right is not None

    @property
    def cells(self) -> int:
        """Number of values that are released."""
        if self.whole:
            return 1
        return self.edges.shape[0 if self.left is None else 1]

    @property
    def grid_bits(self) -> int:
        """Bits that the weights of a value have together."""
        return self.bits * (2 if self.whole else 1)

    @property
    def squared_sensitivity(self) -> int:
        """The square of the most that all values move by in the L2 norm where cells move by one unit in the L1 norm, in
        units of 2^-grid_bits. Where it is one cell by one unit, this is reached with weights of 1 at its ends.
        """
        twice = self.edges.kind == "pairs" and not self.whole
        return (2 if twice else 1) << 2 * self.grid_bits

    def check(self, space: Space) -> None:
        """Raise ValueError unless they are products of this space's cells."""
        self.edges.check(space)

    def tallies(self, space: Space) -> tuple[Tally, ...]:
        """The sums of rows, or of columns where rows have weights alone; what stands on the diagonal of a graph is no
        edge."""
        axis, weights = (1, self.left) if self.right is None else (0, self.right)
        return (LineSums(axis, weights, diagonal=self.edges.kind == "all"),)

    def exact_of(self, space: Space, told: Sequence[Any]) -> IntArray:
        """Products of the cells of a graph or a matrix with weights, in units of the data's and the weights' grids
        together.
        """
        values: IntArray = told[0]
        if self.left is None or self.right is None:
            return values
        # Either direction of an undirected edge is kept.
        return np.array([self.left @ values // (2 if self.edges.kind == "pairs" else 1)], np.int64)

    def events(self, noise: Law, adjacency: Adjacency) -> Events:
        """Values are linear in the cells, so neighbours are no farther apart in L2 than where all of gamma is in one
        cell, by the triangle inequality (docs/privacy.md, 9.7), and edges of one node with weights of 1 are as far. The
        price is the same whatever the weights are. Noise is Gaussian, on the grid of data and weights together.
        """
        assert noise.kind == "gaussian"
        return ((answer(noise, 0, adjacency.gamma**2 * self.squared_sensitivity), 1),)

    def describe(self, space: Space) -> dict[str, Any]:
        """With the cells."""
        return self.edges.describe(space) | {"type": "products", "cells": self.cells, "weight_bits": self.bits}

    @property
    def longest(self) -> int:
        """Of weights or values."""
        return max(self.edges.shape)

    def beside(self) -> dict[str, Any]:
        """The weights: of those by columns there is a value for each row, of those by rows one for each column."""
        left, right = (
            None if weights is None else np.ldexp(weights.astype(np.float64), -self.bits).tolist()
            for weights in (self.left, self.right)
        )
        return {"left": left, "right": right}

    def document(self) -> dict[str, Any]:
        """As JSON: weights in base64, as values are."""
        left, right = (None if side is None else packed_numbers(side) for side in (self.left, self.right))
        return self.edges.document() | {"bits": self.bits, "left": left, "right": right}

    @classmethod
    def read(cls, document: Mapping[str, Any]) -> Products:
        """From JSON.

        Raises:
            KeyError, TypeError, ValueError: when it is none.
        """
        edges = Edges.read(document)
        left, right = (
            None if document[name] is None else unpacked_numbers(document[name], length)
            for name, length in zip(("left", "right"), edges.shape, strict=True)
        )
        return cls(edges, document["bits"], left, right)
