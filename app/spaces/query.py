"""Compiled queries: exact integer weights on a public grid.

A compiled query knows its weights as integers in units of ``2^-grid_bits``, can be contracted with any tensor of
its space, and names its own norm, range and canonical form. What constructions do with its weights over whole arrays is
:mod:`app.constructions.dense`. Two spellings of the same weights compile to the same canonical form, whose SHA-256 is
the query's identity in a session. (Rank-one queries of an undirected graph with weights between 0 and 1 are known by
their two sides alone, sums over combinations of some attributes' values by these: spelled otherwise they are answered
anew.)
"""

from __future__ import annotations

import hashlib
import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import orjson

from app.spaces.lazy import lazy
from app.spaces.records import RecordsTensor
from app.spaces.tensor import (
    BLOCK,
    Array,
    Axis,
    DenseTensor,
    FloatArray,
    IntArray,
    Members,
    PrivateTensor,
    Tensor,
    index_set,
)
from app.spaces.values import Label, Values

#: Combinations of values that conditions with ``any`` and ``not`` are looked at on.
MOST_LOCAL = 1 << 20
_ALL = slice(None)
#: What selects a part of an array's cells.
Index = tuple[slice | IntArray, ...]


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


class Query(ABC):
    """A linear query ``f`` with ``|f| <= 1`` on a space: ``<f, x>``, for data ``x`` with neighbours in L1.

    Most ask for one number. :class:`CompiledMarginal` and the blocks of graphs (:mod:`app.spaces.blocks`) ask for many,
    of which a unit of the data moves one: they have no single inner product, and what is said of weights holds of those
    of all their numbers together.
    """

    #: How many numbers are asked for.
    numbers: int = 1

    #: The bits of the grid that its answers live on, where that is not the space's own.
    answer_bits: int | None = None

    #: Weights are integers in units of 2^-grid_bits.
    grid_bits: int
    #: Largest distance between an asked weight and the compiled one; times the data's mass it bounds the
    #: error that rounding can make.
    rounding: float
    symmetric: bool = False
    #: Whether every weight is known to be zero, so that the answer is 0 whatever the data.
    is_zero: bool = False

    @abstractmethod
    def exact(self, data: PrivateTensor) -> int | IntArray:
        """<f, x> for integer data, in units of 2^-grid_bits of the data's own unit. Exact.

        An ``int`` where one number is asked for, else a flat array of as many as there are.
        """

    @abstractmethod
    def inner(self, hypothesis: Tensor) -> float:
        """<f, h> in the hypothesis' units."""

    @property
    @abstractmethod
    def range(self) -> tuple[float, float]:
        """Smallest and largest weight over the universe."""

    @property
    @abstractmethod
    def norm2sq(self) -> float:
        """Sum of squared weights over the universe."""

    @lazy
    @abstractmethod
    def canonical(self) -> dict[str, Any]:
        """The canonical form: JSON of integers and strings, its keys ASCII."""

    @lazy
    def canonical_bytes(self) -> bytes:
        """The canonical form as RFC 8785 bytes.

        Of integers and strings these are what any JSON writer makes that sorts keys (ASCII ones, so in every order
        alike), leaves no spaces and escapes only what it must; the elements of a multiset may be any text.
        """
        return orjson.dumps(self.canonical, option=orjson.OPT_SORT_KEYS)

    @lazy
    def digest(self) -> bytes:
        """SHA-256 of the canonical form."""
        return hashlib.sha256(self.canonical_bytes).digest()

    @property
    def blob(self) -> bytes | None:
        """Weights too many for the canonical form, which then names their SHA-256; else None."""
        return None

    @property
    def labels(self) -> list[dict[str, Any]]:
        """The axes of an answer that is a table as JSON: the attribute of each, and what its cells are called; none
        where it is one number.
        """
        return []

    def told(self, values: Array) -> Array:
        """Numbers, in the order of :meth:`exact`, in the order of the answer: row-major along its axes."""
        return values


class PartedQuery(Query):
    """A query that tells its weights a part at a time: work on an array needs no second one of its size."""

    @abstractmethod
    def parts(self) -> Iterator[tuple[Index, FloatArray]]:
        """All cells that may weigh something, each once: what selects a part of them, and the weights there.

        The weights are the caller's own and broadcast over the part.
        """


class FullQuery(PartedQuery):
    """One whose parts are all cells."""

    @property
    @abstractmethod
    def shape(self) -> tuple[int, ...]:
        """The space's."""

    def matrix(self) -> FloatArray:
        """The weights as real numbers, in an array of the caller's own."""
        result = np.empty(self.shape)
        for part, weights in self.parts():
            result[part] = weights
        return result


def _axis_canonical(axis: Axis) -> dict[str, Any]:
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

    @lazy
    def grid_bits(self) -> int:  # type: ignore[override]
        return sum(a.bits for a in self.axes if a is not None and a.weights is not None)

    def exact(self, data: Tensor) -> int:
        return int(data.contract(self.axes))

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
    def canonical(self) -> dict[str, Any]:
        axes = []
        for i, axis in enumerate(self.axes):
            if axis is not None:
                grid = {} if axis.weights is None else {"bits": axis.bits}
                axes.append([i, grid | _axis_canonical(axis)])
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
            ((_axis_canonical(axis), axis) for axis in (left, right)),
            key=lambda side: orjson.dumps(side[0], option=orjson.OPT_SORT_KEYS),
        )
        return cls(first[1], second[1], both, rounding, (first[0], second[0]))

    @property
    def grid_bits(self) -> int:  # type: ignore[override]
        return 2 * self.left.bits

    def exact(self, data: Tensor) -> int:
        # The second sum counts every pair twice, so halving it is exact.
        return int(data.contract((self.left, self.right))) - int(data.contract((self.both, self.both))) // 2

    @lazy
    def _diagonal(self) -> FloatArray:
        """What the weights would be on the diagonal, which the universe leaves out."""
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
    def canonical(self) -> dict[str, Any]:
        form: dict[str, Any] = {"sides": list(self.sides), "type": "pair"}
        if self.grid_bits:
            form["bits"] = self.left.bits
        return form


@dataclass(frozen=True, eq=False)
class CompiledSparse(Query):
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

    def exact(self, data: Tensor) -> int:
        return int(data.gather(self.positions).astype(np.int64) @ self.weights)

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

    def exact(self, data: Tensor) -> int:
        total = int(data.inner(self.weights, self.grid_bits))
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

    def exact(self, data: PrivateTensor) -> int:
        return int(data.marginal(self.axes)[self.selection].sum(dtype=np.int64))

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
    def canonical(self) -> dict[str, Any]:
        """The row-major places that weigh one, as the ends of the ranges that they make up."""
        return {"axes": list(self.axes), "ranges": _ranges(self.selection), "type": "local"}


def _ranges(selection: Array) -> list[int]:
    """The row-major places that are selected, as the ends of the ranges that they make up."""
    flat = np.concatenate([[False], selection.reshape(-1), [False]])
    return np.flatnonzero(flat[1:] != flat[:-1]).tolist()


@dataclass(frozen=True, eq=False)
class CompiledZero(Query):
    """Every weight is zero: the answer is 0 whatever the data, and asking tells nothing.

    Weights that were asked may still have been too small for the grid: ``rounding`` bounds those.
    """

    shape: tuple[int, ...]
    rounding: float = 0.0
    grid_bits = 0
    is_zero = True

    def exact(self, data: Tensor) -> int:
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


@dataclass(frozen=True, eq=False)
class Cells:
    """The cells that the values of one attribute are counted in: ``labels[value]`` is the value's cell.

    A value that is not counted has the label -1. Cells are numbered in the order of their least values. ``labels`` is
    None where every value is a cell by itself.
    """

    length: int
    labels: IntArray | None = None

    @classmethod
    def of(cls, labels: IntArray) -> Cells:
        """The cells that values of equal label share, however these are numbered; -1 are not counted.

        Some value must be counted.
        """
        kept = np.flatnonzero(labels >= 0)
        given = labels[kept]
        if bool((given[1:] >= given[:-1]).all()):
            ranked = np.concatenate([[0], np.cumsum(given[1:] > given[:-1])])
        else:
            _, first, inverse = np.unique(given, return_index=True, return_inverse=True)
            rank = np.empty(len(first), dtype=np.int64)
            rank[np.argsort(first)] = np.arange(len(first))
            ranked = rank[inverse]
        if len(ranked) == len(labels) == int(ranked[-1]) + 1:
            return cls(len(labels))
        numbered = np.full(len(labels), -1, dtype=np.int64)
        numbered[kept] = ranked
        return cls(len(labels), numbered)

    @lazy
    def count(self) -> int:
        """How many cells there are."""
        return self.length if self.labels is None else int(self.labels.max()) + 1

    @lazy
    def kept(self) -> IntArray:
        """The values that are counted, ascending."""
        return np.arange(self.length) if self.labels is None else np.flatnonzero(self.labels >= 0)

    @lazy
    def members(self) -> list[IntArray]:
        """The values of each cell, ascending."""
        order, starts = self.grouped
        return np.split(order, starts[1:])

    @lazy
    def grouped(self) -> tuple[IntArray, IntArray]:
        """The values that are counted, cell by cell, and where each cell begins among them."""
        if self.labels is None:
            return self.kept, self.kept
        order, labels = self.kept, self.labels[self.kept]
        if bool((labels[1:] < labels[:-1]).any()):
            by_cell = np.argsort(labels, kind="stable")
            order, labels = order[by_cell], labels[by_cell]
        return order, np.searchsorted(labels, np.arange(self.count))

    def summed(self, array: Array, axis: int) -> Array:
        """Integers with one axis, along the values, summed over each cell."""
        if self.labels is None:
            return array
        order, starts = self.grouped
        index = index_set(self.length, order) if bool((np.diff(order) > 0).all()) else order
        array = array[(slice(None),) * axis + (index,)]
        if len(starts) == len(order):
            return array
        summed: Array = np.add.reduceat(array, starts, axis=axis, dtype=np.int64)
        return summed

    @lazy
    def canonical(self) -> dict[str, Any]:
        """As JSON: a range or a list of values, each by itself; else bins by their edges; else the cell of each."""
        if self.labels is None:
            return {"range": [0, self.length]}
        order, starts = self.grouped
        index = index_set(self.length, order) if bool((np.diff(order) > 0).all()) else None
        if index is not None and len(starts) == len(order):
            return {"range": [index.start, index.stop]} if isinstance(index, slice) else {"in": order.tolist()}
        if isinstance(index, slice):
            return {"edges": [*order[starts].tolist(), index.stop]}
        return {"cells": self.labels.tolist()}


@dataclass(frozen=True, eq=False)
class AskedAxis:
    """An attribute of a marginal as it was asked for: the cells of the answer, and what they are called."""

    axis: int
    values: Values
    cells: Cells

    @property
    def name(self) -> str:
        """The attribute's."""
        return self.values.attribute.name

    @lazy
    def labels(self) -> tuple[Label, ...]:
        """What the cells are called."""
        return self.values.labels(self.cells.members)


@dataclass(frozen=True, eq=False)
class CompiledMarginal(Query):
    """The counts of a table's records by their values of some attributes, among those that satisfy conditions.

    Its numbers stand in row-major order of ``axes``, which ascend. Attributes of which the answer has a single cell
    are none of them: they are conditions. How the answer is told (``asked``) is no part of the question: two orders of
    the same attributes are one.

    Attributes:
        axes: attributes of which there are two cells or more.
        cells: of each of them.
        where: attributes that records are selected by, each by itself, ascending, and the values that are selected.
        among: attributes that records are selected by together, ascending, and for each combination of their values
            whether it is selected; it depends on each of them and is no product. Of attributes that are counted too no
            other values are selected than those. None where there are none.
        universe: how many values each attribute of the table has.
        asked: for the answer alone, the attributes in the order they were asked.
    """

    axes: tuple[int, ...]
    cells: tuple[Cells, ...]
    where: tuple[tuple[int, Members], ...]
    universe: tuple[int, ...]
    asked: tuple[AskedAxis, ...]
    among: tuple[tuple[int, ...], Array] | None = None

    grid_bits = 0
    rounding = 0.0

    @lazy
    def shape(self) -> tuple[int, ...]:
        """How many cells there are along each axis."""
        return tuple(cells.count for cells in self.cells)

    @lazy
    def numbers(self) -> int:  # type: ignore[override]
        return math.prod(self.shape)

    def exact(self, data: PrivateTensor) -> IntArray:
        selected, told = dict(self.where), dict(zip(self.axes, self.cells, strict=True))
        together = () if self.among is None else self.among[0]
        named = tuple(sorted({*selected, *told, *together}))
        if isinstance(data, RecordsTensor) and not data.few(named):
            cells = [(axis, told[axis].labels) for axis in self.axes]
            return data.tallied(cells, self.shape, self.where, self.among)
        counts = data.marginal(named)
        if self.among is not None:
            shape = [self.universe[axis] if axis in together else 1 for axis in named]
            counts = counts * self.among[1].reshape(shape)
        # From the last axis on, so that those before keep their places.
        for place, axis in reversed(list(enumerate(named))):
            if axis in told:
                counts = told[axis].summed(counts, place)
            else:
                index = selected.get(axis, _ALL)
                counts = counts[(slice(None),) * place + (index,)].sum(axis=place, dtype=np.int64)
        return np.array(counts, dtype=np.int64).reshape(-1)

    def inner(self, hypothesis: Tensor) -> float:
        raise TypeError("a marginal is no single sum")

    @property
    def range(self) -> tuple[float, float]:
        return 0.0, 1.0

    @lazy
    def norm2sq(self) -> float:
        """Each cell of the universe that is counted weighs one in one of the numbers."""
        counted = dict(enumerate(self.universe))
        counted |= {axis: len(cells.kept) for axis, cells in zip(self.axes, self.cells, strict=True)}
        counted |= {axis: Axis(self.universe[axis], index).count for axis, index in self.where}
        if self.among is not None:
            counted |= dict.fromkeys(self.among[0], 1) | {-1: int(np.count_nonzero(self.among[1]))}
        return math.prod(map(float, counted.values()))

    @lazy
    def canonical(self) -> dict[str, Any]:
        form: dict[str, Any] = {
            "axes": [[axis, cells.canonical] for axis, cells in zip(self.axes, self.cells, strict=True)],
            "type": "marginal",
            "where": [[axis, _axis_canonical(Axis(self.universe[axis], index))] for axis, index in self.where],
        }
        if self.among is not None:
            form["among"] = {"axes": list(self.among[0]), "ranges": _ranges(self.among[1])}
        return form

    @lazy
    def labels(self) -> list[dict[str, Any]]:
        """The axes of the answer as JSON, in the order asked: the attribute of each, and what its cells are called."""
        return [{"attribute": asked.name, "labels": list(asked.labels)} for asked in self.asked]

    def told(self, values: Array) -> Array:
        """Numbers, one a cell in the order of :meth:`exact`, in the order of the answer: row-major as it was asked."""
        order = [self.axes.index(asked.axis) for asked in self.asked if asked.axis in self.axes]
        return values.reshape(self.shape).transpose(order).reshape(-1)


#: Dense weights by the SHA-256 that canonical forms name them by.
Blobs = Mapping[str, bytes]
