"""Sums with weights on a table, a graph or a matrix: products of weights along axes, pairs of nodes, single cells.

What is asked in words of several kinds compiles to these (:mod:`app.spaces.queries.canonical` says to which). Two
spellings of the same weights have the same canonical form. (Rank-one queries of an undirected graph with weights
between 0 and 1 are known by their two sides alone, sums over combinations of some attributes' values by these: spelled
otherwise they are answered anew.)
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import orjson

from app.spaces.counts import CellCounts, Contraction, Entries, InnerProduct, Tally
from app.spaces.cuts import CutQuestion
from app.spaces.lazy import lazy
from app.spaces.query import FullQuery, Index, LinearQuery, PartedQuery
from app.spaces.questions import Local, Product, Question
from app.spaces.tensor import BLOCK, Array, Axis, DenseTensor, FloatArray, IntArray, Tensor

#: Combinations of values that conditions with ``any`` and ``not`` are looked at on.
MOST_LOCAL = 1 << 20
_ALL = slice(None)


def outer(vectors: list[FloatArray]) -> FloatArray:
    """The outer product of vectors, of as many dimensions; a scalar 1 for none."""
    result = np.ones(())
    for vector in vectors:
        result = result[..., None] * vector
    return result


def _boxes(counts: tuple[int, ...]) -> Iterator[tuple[slice, ...]]:
    """Ranges along every axis that cut a block into parts of at most ``BLOCK`` cells, some of one axis at a time."""
    if math.prod(counts) <= BLOCK:
        yield tuple([slice(0, count) for count in counts])
        return
    cut = next(axis for axis in range(len(counts)) if math.prod(counts[axis + 1 :]) <= BLOCK)
    step = BLOCK // math.prod(counts[cut + 1 :])
    inner = [slice(0, count) for count in counts[cut + 1 :]]
    for corner in np.ndindex(counts[:cut]):
        fixed = [slice(i, i + 1) for i in corner]
        for start in range(0, counts[cut], step):
            yield (*fixed, slice(start, min(start + step, counts[cut])), *inner)


def _range_of_pairs(matrix: FloatArray) -> tuple[float, float]:
    """Smallest and largest entry off the diagonal, which is overwritten."""
    np.fill_diagonal(matrix, matrix[0, 1])
    return float(matrix.min()), float(matrix.max())


def axis_canonical(axis: Axis) -> dict[str, Any]:
    """The weights along an axis as JSON: a range or a list of positions that weigh one, or all weights."""
    if axis.weights is not None:
        return {"weights": axis.weights.tolist()}
    if isinstance(axis.index, slice):
        return {"range": [axis.index.start, axis.index.stop]}
    return {"in": axis.index.tolist()}


@dataclass(frozen=True, eq=False)
class CompiledProduct(PartedQuery):
    """``w_1 (x) ... (x) w_r``: a predicate, a cut from one side to the other, a rank-one query."""

    axes: tuple[Axis | None, ...]
    rounding: float
    shape: tuple[int, ...]
    #: Of a matrix whether its diagonal holds data.
    loops: bool = True

    @lazy
    def grid_bits(self) -> int:  # type: ignore[override]
        return sum(a.bits for a in self.axes if a is not None and a.weights is not None)

    @property
    def tallies(self) -> tuple[Tally, ...]:
        return (Contraction(self.axes),)

    def exact_of(self, told: Sequence[Any]) -> int:
        return int(told[0])

    def inner(self, hypothesis: Tensor) -> float:
        return float(hypothesis.contract(self.axes))

    def parts(self) -> Iterator[tuple[Index, FloatArray]]:
        counts = tuple([n if a is None else a.count for a, n in zip(self.axes, self.shape, strict=True)])
        for box in _boxes(counts):
            index = [part if a is None else a.members(part) for a, part in zip(self.axes, box, strict=True)]
            if sum(not isinstance(members, slice) for members in index) > 1:
                # Several index arrays would be paired up; spelled as a mesh they select the block.
                index = [
                    np.arange(members.start, members.stop) if isinstance(members, slice) else members
                    for members in index
                ]
                index = list(np.ix_(*index))
            factors = [
                np.ones(1) if a is None or a.real is None else a.real[part]
                for a, part in zip(self.axes, box, strict=True)
            ]
            yield tuple(index), outer(factors)

    @lazy
    def range(self) -> tuple[float, float]:
        low, high = 1.0, 1.0
        for axis in self.axes:
            if axis is not None:
                corners = [bound * end for bound in (low, high) for end in axis.range]
                low, high = min(corners), max(corners)
        return low, high

    @lazy
    def norm2sq(self) -> float:
        total = 1.0
        for axis, length in zip(self.axes, self.shape, strict=True):
            total *= length if axis is None else axis.norm2sq
        return total

    @lazy
    def question(self) -> Question:
        return Product.over({i: axis.real_vector() for i, axis in enumerate(self.axes) if axis is not None})

    @lazy
    def cuts(self) -> tuple[CutQuestion, ...]:
        if len(self.axes) != 2:
            return ()
        left, right = (a or Axis(n, slice(0, n)) for a, n in zip(self.axes, self.shape, strict=True))
        return (CutQuestion(left, right, loops=self.loops),)

    @lazy
    def canonical(self) -> dict[str, Any]:
        axes = []
        for i, axis in enumerate(self.axes):
            if axis is not None:
                grid = {} if axis.weights is None else {"bits": axis.bits}
                axes.append([i, grid | axis_canonical(axis)])
        return {"axes": axes, "type": "product"}


@dataclass(frozen=True, eq=False)
class CompiledPair(FullQuery):
    """A cut (S, T) or rank-one query of an undirected graph, whose universe is the pairs i < j.

    On {i, j} the weight is ``s_i t_j + t_i s_j - w_i w_j`` with ``w = s * t``: for 0/1 vectors 1 when the edge
    runs between S and T, never 2; for weights in [0, 1] it is ``1 - (1 - s_i t_j)(1 - t_i s_j)``. On a
    symmetric matrix with zero diagonal the answer is half the full sum. ``both`` (the w) is rounded up to the
    grid, so that no weight passes 1.
    """

    left: Axis
    right: Axis
    both: Axis
    rounding: float
    sides: tuple[dict[str, Any], dict[str, Any]]

    symmetric = True

    @classmethod
    def of(cls, left: Axis, right: Axis, both: Axis, rounding: float) -> CompiledPair:
        """The query of two sides in either order.

        (S, T) and (T, S) are one query, to the last bit of what it makes of a hypothesis: they are put in the order of
        their canonical bytes here.
        """
        first, second = sorted(
            ((axis_canonical(axis), axis) for axis in (left, right)),
            key=lambda side: orjson.dumps(side[0], option=orjson.OPT_SORT_KEYS),
        )
        return cls(first[1], second[1], both, rounding, (first[0], second[0]))

    @property
    def grid_bits(self) -> int:  # type: ignore[override]
        return 2 * self.left.bits

    @property
    def tallies(self) -> tuple[Tally, ...]:
        return Contraction((self.left, self.right)), Contraction((self.both, self.both))

    def exact_of(self, told: Sequence[Any]) -> int:
        every, twice = told
        # The second sum counts every pair twice, so halving it is exact.
        return int(every) - int(twice) // 2

    @lazy
    def _diagonal(self) -> FloatArray:
        """The weights that would stand on the diagonal, which the universe leaves out."""
        both = self.both.real_vector()
        result: FloatArray = 2 * self.left.real_vector() * self.right.real_vector() - both * both
        return result

    def inner(self, hypothesis: Tensor) -> float:
        total = hypothesis.contract((self.left, self.right)) - hypothesis.contract((self.both, self.both)) / 2
        if hypothesis.diagonal is not None:
            total -= float(self._diagonal @ hypothesis.diagonal) / 2
        return float(total)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.left.length, self.left.length

    def parts(self) -> Iterator[tuple[Index, FloatArray]]:
        """Bands of rows of a symmetric matrix with zero diagonal."""
        left, right, both = (a.real_vector() for a in (self.left, self.right, self.both))
        nodes = len(left)
        band = max(1, BLOCK // nodes)
        for start in range(0, nodes, band):
            rows = slice(start, min(start + band, nodes))
            weights = left[rows, None] * right
            weights += right[rows, None] * left
            weights -= both[rows, None] * both
            weights.reshape(-1)[start :: nodes + 1] = 0.0
            yield (rows, slice(0, nodes)), weights

    @lazy
    def range(self) -> tuple[float, float]:
        if self.grid_bits == 0:
            touched = self.norm2sq
            nodes = self.left.length
            return (1.0 if touched == nodes * (nodes - 1) / 2 else 0.0), (1.0 if touched else 0.0)
        return _range_of_pairs(self.matrix())

    @lazy
    def norm2sq(self) -> float:
        if self.grid_bits == 0:
            # The pairs themselves: of two nodes on both sides there is one, of a node with itself none.
            twice = self.both.count
            return float(self.left.count * self.right.count - twice * (twice + 1) // 2)
        left, right, both = (a.real_vector() for a in (self.left, self.right, self.both))
        full = (
            2 * (left @ left) * (right @ right)
            + (both @ both) ** 2
            + 2 * (left @ right) ** 2
            - 4 * (left @ both) * (right @ both)
        )
        return float((full - self._diagonal @ self._diagonal) / 2)

    @lazy
    def cuts(self) -> tuple[CutQuestion, ...]:
        return (CutQuestion(self.left, self.right, self.both, loops=False),)

    @lazy
    def canonical(self) -> dict[str, Any]:
        form: dict[str, Any] = {"sides": list(self.sides), "type": "pair"}
        if self.grid_bits:
            form["bits"] = self.left.bits
        return form


@dataclass(frozen=True, eq=False)
class CompiledSparse(LinearQuery):
    """Weights of a few cells, by sorted row-major position; of an undirected graph the position with i < j."""

    positions: IntArray
    weights: IntArray
    grid_bits: int
    rounding: float
    shape: tuple[int, ...]
    size: int
    symmetric: bool = False

    @lazy
    def real(self) -> FloatArray:
        """The weights as real numbers, exact in float64."""
        return np.ldexp(self.weights.astype(np.float64), -self.grid_bits)

    @lazy
    def mirrored(self) -> IntArray:
        """The positions in the other half of a symmetric matrix."""
        rows, columns = np.divmod(self.positions, self.shape[1])
        return columns * self.shape[1] + rows

    @property
    def tallies(self) -> tuple[Tally, ...]:
        return (Entries(self.positions),)

    def exact_of(self, told: Sequence[Any]) -> int:
        return int(told[0].astype(np.int64) @ self.weights)

    def inner(self, hypothesis: Tensor) -> float:
        return float(hypothesis.gather(self.positions) @ self.real)

    @lazy
    def range(self) -> tuple[float, float]:
        low, high = float(self.real.min()), float(self.real.max())
        return (low, high) if len(self.real) == self.size else (min(low, 0.0), max(high, 0.0))

    @lazy
    def norm2sq(self) -> float:
        return float(self.real @ self.real)

    @lazy
    def question(self) -> Question:
        weights = np.zeros(self.shape)
        weights.reshape(-1)[self.positions] = self.real
        return Local.over(range(len(self.shape)), weights)

    @lazy
    def canonical(self) -> dict[str, Any]:
        return {
            "bits": self.grid_bits,
            "indices": self.positions.tolist(),
            "type": "sparse",
            "weights": self.weights.tolist(),
        }


@dataclass(frozen=True, eq=False)
class CompiledDense(FullQuery):
    """A weight for every cell, as int32 in units of 2^-grid_bits; symmetric where the graph is undirected."""

    weights: Array
    grid_bits: int
    rounding: float
    symmetric: bool = False

    @property
    def tallies(self) -> tuple[Tally, ...]:
        return (InnerProduct(self.weights, self.grid_bits),)

    def exact_of(self, told: Sequence[Any]) -> int:
        total = int(told[0])
        return total // 2 if self.symmetric else total

    def inner(self, hypothesis: Tensor) -> float:
        total = float(hypothesis.inner(self.weights, self.grid_bits))
        if self.symmetric:
            # The weights' own diagonal is zero, so a hypothesis' stored diagonal does not show.
            total /= 2
        return total

    @property
    def shape(self) -> tuple[int, ...]:
        return self.weights.shape

    def parts(self) -> Iterator[tuple[Index, FloatArray]]:
        unit = 2.0**-self.grid_bits
        for box in _boxes(self.shape):
            yield box, self.weights[box] * unit

    @lazy
    def range(self) -> tuple[float, float]:
        if self.symmetric:
            return _range_of_pairs(self.matrix())
        scale = 2.0**-self.grid_bits
        return float(self.weights.min()) * scale, float(self.weights.max()) * scale

    @lazy
    def norm2sq(self) -> float:
        flat = self.matrix().reshape(-1)
        total = float(flat @ flat)
        return total / 2 if self.symmetric else total

    @lazy
    def blob(self) -> bytes:
        """Weights as little-endian int32, row-major."""
        return np.ascontiguousarray(self.weights, dtype="<i4").tobytes()

    @lazy
    def question(self) -> Question:
        return Local.over(range(len(self.shape)), self.matrix())

    @lazy
    def canonical(self) -> dict[str, Any]:
        return {"bits": self.grid_bits, "sha256": hashlib.sha256(self.blob).hexdigest(), "type": "dense"}


@dataclass(frozen=True, eq=False)
class CompiledLocal(FullQuery):
    """Weights of 0 and 1 on the combinations of values of some attributes of a table, whatever the others are.

    They depend on each of these attributes, are no product, and there is another attribute.

    Attributes:
        axes: the attributes, ascending.
        selection: for each combination of their values whether it weighs one.
        universe: how many values each attribute of the table has.
    """

    axes: tuple[int, ...]
    selection: Array
    universe: tuple[int, ...]

    grid_bits = 0
    rounding = 0.0

    @property
    def tallies(self) -> tuple[Tally, ...]:
        return (CellCounts((), (), (), among=(self.axes, self.selection), again=True),)

    def exact_of(self, told: Sequence[Any]) -> int:
        return int(told[0])

    def inner(self, hypothesis: Tensor) -> float:
        assert isinstance(hypothesis, DenseTensor), "a hypothesis over a table is one"
        return float(hypothesis.marginal(self.axes)[self.selection].sum())

    @property
    def shape(self) -> tuple[int, ...]:
        return self.universe

    def parts(self) -> Iterator[tuple[Index, FloatArray]]:
        spread = self.selection.reshape([n if i in self.axes else 1 for i, n in enumerate(self.universe)])
        for box in _boxes(self.universe):
            yield (
                box,
                spread[tuple([part if i in self.axes else _ALL for i, part in enumerate(box)])].astype(np.float64),
            )

    @property
    def range(self) -> tuple[float, float]:
        return 0.0, 1.0

    @lazy
    def norm2sq(self) -> float:
        others = [float(n) for i, n in enumerate(self.universe) if i not in self.axes]
        return math.prod(others, start=float(np.count_nonzero(self.selection)))

    @lazy
    def question(self) -> Question:
        return Local.over(self.axes, self.selection)

    @lazy
    def canonical(self) -> dict[str, Any]:
        """The row-major places that weigh one, as the ends of the ranges that they make up."""
        return {"axes": list(self.axes), "ranges": ranges_of(self.selection), "type": "local"}


def ranges_of(selection: Array) -> list[int]:
    """The row-major places that are selected, as the ends of the ranges that they make up."""
    flat = np.concatenate([[False], selection.reshape(-1), [False]])
    return np.flatnonzero(flat[1:] != flat[:-1]).tolist()


@dataclass(frozen=True, eq=False)
class CompiledZero(LinearQuery):
    """Every weight is zero: the answer is 0 whatever the data, and asking tells nothing.

    Weights that were asked may still have been too small for the grid: ``rounding`` bounds those.
    """

    shape: tuple[int, ...]
    rounding: float = 0.0
    grid_bits = 0
    is_zero = True

    @property
    def tallies(self) -> tuple[Tally, ...]:
        return ()

    def exact_of(self, told: Sequence[Any]) -> int:
        return 0

    def inner(self, hypothesis: Tensor) -> float:
        return 0.0

    @property
    def range(self) -> tuple[float, float]:
        return 0.0, 0.0

    @property
    def norm2sq(self) -> float:
        return 0.0

    @lazy
    def canonical(self) -> dict[str, Any]:
        return {"type": "zero"}
