"""Measurements of graphs and matrices: every cell of the universe, released once with noise of its own.

A cell is an entry of the adjacency matrix, or of the matrix. An undirected graph has one for each unordered pair of
nodes, which is measured once; a graph has none for loops. Neighbours differ by gamma in the L1 norm over the cells,
so that is the sensitivity of all of them together; they may differ in several cells, each by less.

Numbers get Laplace or Gaussian noise. Bits, the edges of a graph without weights, may be released by randomised
response instead: each is turned over with the same probability.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from app.measurements.noise import BitFlips, Law
from app.measurements.pricing import Adjacency, Events, answer
from app.measurements.strategy import Strategy
from app.privacy.costs import RandomisedResponse
from app.spaces.counts import AllEntries, Tally
from app.spaces.space import Space
from app.spaces.tensor import FloatArray, IntArray

#: Which entries are cells: ``all`` of them, ``arcs`` (all but the diagonal) or ``pairs`` (those above the diagonal).
CellKind = Literal["all", "arcs", "pairs"]


@dataclass(frozen=True)
class Edges(Strategy):
    """The strategy of single cells of a graph or a matrix, row by row.

    Attributes:
        shape: rows and columns of the matrix.
        kind: which of its entries are cells.

    Raises:
        ValueError: when it is not of this form.
    """

    shape: tuple[int, int]
    kind: CellKind
    tag = "edges"
    binary = True

    def __post_init__(self) -> None:
        if len(self.shape) != 2 or any(type(n) is not int or n < 1 for n in self.shape):
            raise ValueError("a matrix has rows and columns")
        if self.kind not in ("all", "arcs", "pairs") or (self.kind != "all" and self.shape[0] != self.shape[1]):
            raise ValueError("edges between the nodes of one set are a square matrix's")
        if self.cells < 1:
            raise ValueError("there is no cell to be measured")

    @classmethod
    def of(cls, space: Space) -> Edges:
        """The cells of a graph or matrix. Loops hold no data."""
        rows, columns = space.shape
        if space.loops:
            return cls((rows, columns), "all")
        return cls((rows, columns), "pairs" if space.symmetric else "arcs")

    @property
    def cells(self) -> int:
        """Number of values that are released."""
        rows, columns = self.shape
        if self.kind == "all":
            return rows * columns
        return rows * (rows - 1) // (2 if self.kind == "pairs" else 1)

    def check(self, space: Space) -> None:
        """Raise ValueError unless they are the cells of this space."""
        if space.kind == "table" or space.extent == "unbounded" or len(space.shape) != 2 or Edges.of(space) != self:
            raise ValueError("the cells are not those of this graph or matrix")

    def positions(self, rows: IntArray, columns: IntArray) -> IntArray:
        """Where entries stand among the cells; each must be one."""
        n = self.shape[1]
        rows, columns = rows.astype(np.int64), columns.astype(np.int64)
        if self.kind == "all":
            return rows * n + columns
        if self.kind == "arcs":
            return rows * (n - 1) + columns - (columns > rows)
        return rows * (n - 1) - rows * (rows + 1) // 2 + columns - 1

    def ends(self) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]:
        """Row and column of every cell."""
        rows, columns = self.shape
        each = np.arange(rows, dtype=np.int32)
        if self.kind == "all":
            return np.repeat(each, columns), np.tile(np.arange(columns, dtype=np.int32), rows)
        if self.kind == "arcs":
            first = np.repeat(each, columns - 1)
            second = np.tile(np.arange(columns - 1, dtype=np.int32), rows)
            return first, second + (second >= first)
        counts = rows - 1 - each
        first = np.repeat(each, counts)
        begins = np.cumsum(counts, dtype=np.int64) - counts
        return first, (np.arange(self.cells) - np.repeat(begins - each - 1, counts)).astype(np.int32)

    def flattened(self, matrix: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """The cells of a matrix of this shape."""
        if self.kind == "all":
            return matrix.reshape(-1)
        rows, columns = np.ogrid[: self.shape[0], : self.shape[1]]
        return matrix[rows < columns] if self.kind == "pairs" else matrix[rows != columns]

    def matrix(self, values: FloatArray) -> FloatArray:
        """The matrix of values of all cells, symmetric where they are pairs; what is no cell is zero."""
        if self.kind == "all":
            return values.reshape(self.shape)
        made = np.zeros(self.shape)
        rows, columns = np.ogrid[: self.shape[0], : self.shape[1]]
        if self.kind == "arcs":
            made[rows != columns] = values
            return made
        made[rows < columns] = values
        made += made.T
        return made

    def tallies(self, space: Space) -> tuple[Tally, ...]:
        return (AllEntries(),)

    def exact_of(self, space: Space, told: Sequence[Any]) -> IntArray:
        """The value of every cell of a graph or a matrix, in data units, of the type in which it is kept.

        Where only what is not zero is kept, nothing is made beside the cells themselves.
        """
        (entries,) = told
        if isinstance(entries, np.ndarray):
            return self.flattened(entries)
        kept = entries.tocoo()
        rows, columns = kept.coords
        # Either direction of an undirected edge is kept.
        upper = rows < columns if self.kind == "pairs" else slice(None)
        cells: IntArray = np.zeros(self.cells, kept.dtype)
        cells[self.positions(rows[upper], columns[upper])] = kept.data[upper]
        return cells

    def events(self, noise: Law, adjacency: Adjacency) -> Events:
        """The cost of a move is convex in it, zero at zero, and of Gaussian noise its square. So moves of at most
        ``sensitivity`` that add up to gamma cost no more than ``cells`` moves by ``sensitivity`` (docs/privacy.md,
        9.6). Bits that differ are no more than ``cells``.
        """
        if isinstance(noise, BitFlips):
            if adjacency.sensitivity != 1:
                raise ValueError("a bit moves by one")
            return ((RandomisedResponse(noise.probability), adjacency.cells),)
        if noise.kind == "gaussian":
            return ((answer(noise, adjacency.gamma, adjacency.cells * adjacency.sensitivity**2), 1),)
        return ((answer(noise, adjacency.sensitivity, adjacency.sensitivity**2), adjacency.cells),)

    def describe(self, space: Space) -> dict[str, Any]:
        """All cells: of an undirected graph pairs of nodes, of a directed one no loops."""
        return {"type": "edges", "shape": list(self.shape), "of": self.kind, "cells": self.cells}

    @property
    def longest(self) -> int:
        """Of all cells."""
        return self.cells

    def document(self) -> dict[str, Any]:
        """As JSON."""
        return {"cells": self.kind, "shape": list(self.shape)}

    @classmethod
    def read(cls, document: Mapping[str, Any]) -> Edges:
        """From JSON.

        Raises:
            KeyError, TypeError, ValueError: when it is none.
        """
        rows, columns = document["shape"]
        return cls((rows, columns), document["cells"])
