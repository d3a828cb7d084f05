"""Measurements of graphs node by node: every degree, released once with noise of its own.

The degree of a node is the sum of its cells (see :mod:`.edges`): of a directed graph a node has one of the edges that
leave it and one of those that enter it, of a bipartite graph a node of either side has one, and of an undirected graph
every node has one. Whatever the graph, a cell is counted by two degrees. So where neighbours differ by gamma in the L1
norm over the cells, each degree moves by at most gamma, and all of them by at most ``2 gamma`` in the L1 norm and
``2 gamma^2`` in the square of the L2 norm (docs/privacy.md, 9.6).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, TypeAlias

import numpy as np

from app.evidence.edges import EdgeBuy, EdgeRelease, Edges, packed_numbers, unpacked_numbers
from app.evidence.measurements import Noise
from app.evidence.products import ProductBuy, ProductRelease
from app.spaces.lazy import lazy
from app.spaces.space import Space
from app.spaces.tensor import FloatArray, IntArray


@dataclass(frozen=True)
class Degrees:
    """What is measured: the sums of rows and of columns, in this order; of an undirected graph the sums of rows alone.

    Attributes:
        edges: the cells that are summed.
    """

    edges: Edges

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
        """Raise ValueError unless they are the degrees of this space."""
        self.edges.check(space)
        if space.kind == "matrix":
            raise ValueError("a matrix has no nodes")

    def sides(self, values: FloatArray) -> tuple[FloatArray, FloatArray]:
        """The sums of rows and the sums of columns among values of all degrees; of an undirected graph the same."""
        rows = self.edges.shape[0]
        return values[:rows], values[:rows] if self.edges.kind == "pairs" else values[rows:]

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


@dataclass(frozen=True)
class DegreeBuy:
    """A measurement to be made of all degrees, and its noise."""

    strategy: Degrees
    noise: Noise

    @property
    def kind(self) -> str:
        """The law of the noise."""
        return self.noise.kind

    @property
    def scale(self) -> Decimal:
        """The noise's parameter: b or sigma, in counts."""
        return self.noise.scale


@dataclass(frozen=True, eq=False)
class DegreeRelease:
    """The degrees that were measured, the noise, and what was released.

    Attributes:
        strategy: the degrees.
        noise: of each.
        units: the released values, one a degree: whole units of 2^-bits, not clipped, so that each is unbiased.

    Raises:
        ValueError: when there are other values than degrees.
    """

    strategy: Degrees
    noise: Noise
    units: IntArray

    def __post_init__(self) -> None:
        units = np.array(self.units, dtype=np.int64)
        if units.shape != (self.strategy.cells,):
            raise ValueError(f"{self.strategy.cells} degrees have no values of shape {units.shape}")
        units.setflags(write=False)
        object.__setattr__(self, "units", units)

    @property
    def variance(self) -> float:
        """Variance of each value, in counts squared."""
        return self.noise.variance

    @lazy
    def values(self) -> FloatArray:
        """The unbiased value of each degree, in counts."""
        values = np.ldexp(self.units.astype(np.float64), -self.noise.bits)
        values.setflags(write=False)
        return values

    def document(self) -> dict[str, Any]:
        """As JSON: values in base64, as those of edges that are numbers."""
        return {
            "degrees": self.strategy.document(),
            "noise": self.noise.document(),
            "values": packed_numbers(self.units),
        }

    @classmethod
    def read(cls, document: Mapping[str, Any]) -> DegreeRelease:
        """From JSON.

        Raises:
            ValueError: when it is none.
        """
        try:
            degrees, noise = Degrees.read(document["degrees"]), Noise.read(document["noise"])
            return cls(degrees, noise, unpacked_numbers(document["values"], degrees.cells))
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError("not the document of a measurement") from error


#: What is measured of a graph or a matrix, and what was.
GraphBuy: TypeAlias = EdgeBuy | DegreeBuy | ProductBuy
GraphRelease: TypeAlias = EdgeRelease | DegreeRelease | ProductRelease
