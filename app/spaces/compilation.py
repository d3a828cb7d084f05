"""Compilation: from the query that is asked for to its exact weights on a finite universe."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from app.spaces import canonical
from app.spaces.errors import InvalidQuery
from app.spaces.query import Blobs, CompiledZero, Query
from app.spaces.query_request import CutQuery, DenseQuery, MarginalQuery, Node, QueryRequest, SparseQuery
from app.spaces.rounding import bounding, on_grid, rounding_error
from app.spaces.space import MAX_CELLS, Space
from app.spaces.tensor import Array, FloatArray, IntArray, Members, chunks, count_of

#: Of an axis this many times as long as there are positions these are sorted, not marked.
_SCATTERED = 64


def check_weights(weights: FloatArray, low: float = -1.0) -> None:
    """Raise InvalidQuery unless all weights are finite and in [low, 1]."""
    if not weights.size:
        return
    smallest, largest = float(weights.min()), float(weights.max())
    # A NaN makes both comparisons false.
    if not (smallest >= low and largest <= 1.0):
        raise InvalidQuery(f"weights must be finite and lie in [{low:g}, 1]")


def _holds_booleans(weights: Sequence[Any]) -> bool:
    """Whether true or false stands among weights. NumPy takes them for 1 and 0 where there are numbers beside them."""
    kinds = set(map(type, weights))
    return bool in kinds or (list in kinds and any(_holds_booleans(part) for part in weights if type(part) is list))


def axis_weights(values: Sequence[float] | Array, length: int, what: str) -> FloatArray:
    """All weights along an axis.

    Raises:
        InvalidQuery: when they are not as many as the axis is long.
    """
    vector = np.asarray(values, dtype=np.float64)
    if vector.shape != (length,):
        raise InvalidQuery(f"{what}: {length} weights are needed, {vector.size} are given")
    return vector


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


@dataclass(frozen=True)
class CellSpace(Space):
    """A space whose universe is finite: what all such spaces compile alike."""

    def looked_at(self, request: QueryRequest) -> int:
        if isinstance(request, CutQuery) and not self.symmetric:
            return 0
        return sum(self.shape)

    def compile_cells(self, request: QueryRequest) -> Query:
        """The query of listed cells or of all cells.

        Raises:
            InvalidQuery: when it is of another form, or does not fit.
        """
        if isinstance(request, SparseQuery):
            return self._sparse(request)
        if isinstance(request, DenseQuery):
            if _holds_booleans(request.weights):
                raise InvalidQuery("dense: weights must be numbers")
            try:
                weights = np.asarray(request.weights)
            except ValueError:
                raise InvalidQuery("dense: weights must be flat or nested as the shape") from None
            return self.compile_dense(weights)
        if isinstance(request, MarginalQuery):
            raise InvalidQuery(f"marginals are of the attributes of a table, and this is a {self.kind} data set")
        raise InvalidQuery(f"a {request.type} query does not fit a {self.kind} data set")

    def product(self, given: Mapping[int, Members | FloatArray]) -> Query:
        """A product query from, for each named axis, a range, sorted indices (integers) or all weights (floats)."""
        members: dict[int, Members] = {}
        weighted: dict[int, FloatArray] = {}
        for i, values in given.items():
            if isinstance(values, slice):
                members[i] = values
                continue
            if values.dtype.kind != "f":
                members[i] = values.astype(np.int64, copy=False)
                continue
            vector = values.astype(np.float64, copy=False)
            check_weights(vector)
            zeros, ones = vector == 0, vector == 1
            if bool(np.all(zeros | ones)):
                members[i] = np.flatnonzero(ones)
            else:
                weighted[i] = vector
        if not all(map(count_of, members.values())):
            return CompiledZero(self.shape)
        if not weighted:
            return canonical.product_query(self, members, {}, 1, 0, 0.0)
        # |prod w - prod w'| <= sum_i |w_i - w'_i| prod_{j != i} max(|w_j|, |w'_j|), the product taken factor by factor.
        errors: dict[int, float] = {}
        largest: dict[int, float] = {}
        while True:
            bits = self.axis_bits(len(weighted)) if weighted else 0
            integers = {}
            for i, vector in list(weighted.items()):
                scaled = np.ldexp(vector, bits)
                rounded = np.rint(scaled)
                errors[i] = rounding_error(float(np.abs(rounded - scaled).max()), bits)
                largest[i] = max(float(np.abs(vector).max()), float(np.abs(rounded).max()) * 2.0**-bits)
                integers[i] = rounded.astype(np.int64)
                if bool(np.all((rounded == 0) | (rounded == 1 << bits))):
                    # Now an index set: the other axes share its bits, as if it had been spelled as one.
                    members[i] = np.flatnonzero(rounded)
                    del weighted[i]
            if len(integers) == len(weighted):
                rounding = sum(e * math.prod(v for j, v in largest.items() if j != i) for i, e in errors.items())
                if any(errors.values()):
                    rounding = bounding(rounding)
                return canonical.product_query(self, members, integers, 1, bits * len(integers), rounding)

    def _sparse(self, request: SparseQuery) -> Query:
        if len(request.indices) != len(request.weights):
            raise InvalidQuery("sparse: indices and weights must be of one length")
        if self.cells > MAX_CELLS:
            raise InvalidQuery(
                f"sparse: cells can be listed in universes of at most {MAX_CELLS:,} cells: ask by attributes"
            )
        weights = np.asarray(request.weights, dtype=np.float64)
        check_weights(weights)
        if not len(weights):
            return CompiledZero(self.shape)
        try:
            indices = np.asarray(request.indices, dtype=np.int64)
        except (ValueError, OverflowError):
            raise InvalidQuery("sparse: indices must be in range and of one form") from None
        if indices.ndim == 2:
            if indices.shape[1] != len(self.shape) or bool((indices < 0).any() | (indices >= self.shape).any()):
                raise InvalidQuery(f"sparse: per-axis indices must lie within the shape {list(self.shape)}")
            indices = np.ravel_multi_index(tuple(indices.T), self.shape).astype(np.int64)
        if bool((indices < 0).any() | (indices >= self.cells).any()):
            raise InvalidQuery(f"sparse: flat indices must lie in 0..{self.cells - 1}")
        if self.symmetric:
            rows, columns = np.divmod(indices, self.shape[1])
            if bool((rows == columns).any()):
                raise InvalidQuery("sparse: the diagonal is no part of an undirected graph")
            indices = np.minimum(rows, columns) * self.shape[1] + np.maximum(rows, columns)
        order = np.argsort(indices, kind="stable")
        indices, weights = indices[order], weights[order]
        if bool((np.diff(indices) == 0).any()):
            raise InvalidQuery("sparse: a cell is listed twice")
        bits = self.axis_bits(1)
        integers, rounding = on_grid(weights, bits)
        return canonical.cells_query(self, indices, integers, bits, rounding)

    def compile_dense(self, weights: Array) -> Query:
        if weights.dtype.kind not in "fiu":
            raise InvalidQuery("dense: weights must be numbers")
        if weights.shape not in (self.shape, (self.cells,)):
            raise InvalidQuery(f"dense: {self.cells} weights in the shape {list(self.shape)} are needed")
        weights = weights.reshape(self.shape)
        check_weights(weights)
        if self.symmetric and (bool(np.diagonal(weights).any()) or not np.array_equal(weights, weights.T)):
            raise InvalidQuery("dense: weights of an undirected graph must be symmetric with zero diagonal")
        if weights.dtype.itemsize > 8 and not np.array_equal(weights, weights.astype(np.float64)):
            raise InvalidQuery("dense: weights must be numbers of at most 64 bits")
        bits = self.axis_bits(1)
        integers, largest = np.empty(self.shape, dtype=np.int32), 0.0
        asked, kept = weights.reshape(-1), integers.reshape(-1)
        # Part by part: what is made on the way stays in caches, and takes no memory to speak of.
        for part in chunks(weights.size):
            scaled = np.ldexp(asked[part].astype(np.float64, copy=False), bits)
            rounded = np.rint(scaled)
            kept[part] = rounded
            scaled -= rounded
            largest = max(largest, float(scaled.max()), -float(scaled.min()))
        return canonical.dense_query(self, integers, bits, rounding_error(largest, bits))

    def _read_canonical(self, form: Mapping[str, Any], blobs: Blobs) -> Query:
        return canonical.read(self, form, blobs)
