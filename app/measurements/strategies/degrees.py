"""Measurements of graphs node by node: every degree, released once with noise of its own.

The degree of a node is the sum of its cells (see :mod:`.edges`): of a directed graph a node has one of the edges that
leave it and one of those that enter it, of a bipartite graph a node of either side has one, and of an undirected graph
every node has one. Whatever the graph, a cell is counted by two degrees. So where neighbours differ by gamma in the L1
norm over the cells, each degree moves by at most gamma, and all of them by at most ``2 gamma`` in the L1 norm. Where
one edge moves by gamma, the square of the L2 norm is at most ``2 gamma^2``; where they are gamma edges of one node, at
most ``gamma^2 + gamma`` (docs/privacy.md, 9.6).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from app.measurements.noise import Law
from app.measurements.pricing import Adjacency, Events, answer
from app.measurements.strategies.edges import Edges
from app.measurements.strategy import Strategy
from app.spaces.counts import LineSums, Tally
from app.spaces.space import Space
from app.spaces.tensor import FloatArray, IntArray


@dataclass(frozen=True)
class Degrees(Strategy):
    """The strategy of degrees: the sums of rows and of columns, in this order; of an undirected graph the sums of rows
    alone.

    Attributes:
        edges: the cells that are summed.
    """

    edges: Edges
    tag = "degrees"

    @classmethod
    def of(cls, space: Space) -> Degrees:
        """The degrees of a graph."""
        return cls(Edges.of(space))

    @property
    def cells(self) -> int:
        """Number of values that are released."""
        rows, columns = self.edges.shape
        return rows if self.edges.kind == "pairs" else rows + columns

    def check(self, space: Space) -> None:
        """Raise ValueError unless they are the degrees of this graph, or the sums of this matrix."""
        self.edges.check(space)

    def sides(self, values: FloatArray) -> tuple[FloatArray, FloatArray]:
        """The sums of rows and the sums of columns among values of all degrees; of an undirected graph the same."""
        rows = self.edges.shape[0]
        return values[:rows], values[:rows] if self.edges.kind == "pairs" else values[rows:]

    def tallies(self, space: Space) -> tuple[Tally, ...]:
        """Of each side; what stands on the diagonal of a graph is no edge."""
        kind = self.edges.kind
        return tuple(LineSums(axis, diagonal=kind == "all") for axis in ((0,) if kind == "pairs" else (0, 1)))

    def exact_of(self, space: Space, told: Sequence[Any]) -> IntArray:
        """The degree of every node of a graph, in data units."""
        return np.concatenate(told)

    def events(self, noise: Law, adjacency: Adjacency) -> Events:
        """A cell is counted by two degrees. Of the cells that move one end is the same: its degree moves by gamma at
        most, those of the other ends by ``sensitivity`` at most and by gamma together, which costs as cells do.
        """
        gamma, sensitivity = adjacency.gamma, adjacency.sensitivity
        if noise.kind == "gaussian":
            return ((answer(noise, 2 * gamma, gamma**2 + adjacency.cells * sensitivity**2), 1),)
        return (answer(noise, gamma, gamma**2), 1), (answer(noise, sensitivity, sensitivity**2), adjacency.cells)

    def describe(self, space: Space) -> dict[str, Any]:
        """With the cells whose sums they are."""
        return self.edges.describe(space) | {"type": "degrees", "cells": self.cells}

    def document(self) -> dict[str, Any]:
        """As JSON."""
        return self.edges.document()

    @classmethod
    def read(cls, document: Mapping[str, Any]) -> Degrees:
        """From JSON.

        Raises:
            KeyError, TypeError, ValueError: when it is none.
        """
        return cls(Edges.read(document))
