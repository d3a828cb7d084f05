"""Cells one by one: a list of them with their weights, or a weight for each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field, StrictInt

from app.spaces.errors import InvalidQuery
from app.spaces.queries import canonical
from app.spaces.queries.linear import CompiledZero
from app.spaces.queries.request import Request, Weights, does_not_fit
from app.spaces.queries.weights import check_weights
from app.spaces.query import Query
from app.spaces.rounding import on_grid, rounding_error
from app.spaces.space import MAX_CELLS, Space
from app.spaces.tensor import Array, chunks


class SparseQuery(Request):
    """Weights of the listed cells; all others weigh zero. Indices are flat (row-major) or one list a cell."""

    type: Literal["sparse"]
    indices: Annotated[list[StrictInt], Field(fail_fast=True)] | Annotated[list[list[StrictInt]], Field(fail_fast=True)]
    weights: Weights

    def compiled(self, space: Space) -> Query:
        if space.extent == "unbounded":
            raise does_not_fit(self.type, space)
        if len(self.indices) != len(self.weights):
            raise InvalidQuery("sparse: indices and weights must be of one length")
        if space.cells > MAX_CELLS:
            raise InvalidQuery(
                f"sparse: cells can be listed in universes of at most {MAX_CELLS:,} cells: ask by attributes"
            )
        weights = np.asarray(self.weights, dtype=np.float64)
        check_weights(weights)
        if not len(weights):
            return CompiledZero(space.shape)
        try:
            indices = np.asarray(self.indices, dtype=np.int64)
        except (ValueError, OverflowError):
            raise InvalidQuery("sparse: indices must be in range and of one form") from None
        if indices.ndim == 2:
            if indices.shape[1] != len(space.shape) or bool((indices < 0).any() | (indices >= space.shape).any()):
                raise InvalidQuery(f"sparse: per-axis indices must lie within the shape {list(space.shape)}")
            indices = np.ravel_multi_index(tuple(indices.T), space.shape).astype(np.int64)
        if bool((indices < 0).any() | (indices >= space.cells).any()):
            raise InvalidQuery(f"sparse: flat indices must lie in 0..{space.cells - 1}")
        if space.symmetric:
            rows, columns = np.divmod(indices, space.shape[1])
            if bool((rows == columns).any()):
                raise InvalidQuery("sparse: the diagonal is no part of an undirected graph")
            indices = np.minimum(rows, columns) * space.shape[1] + np.maximum(rows, columns)
        order = np.argsort(indices, kind="stable")
        indices, weights = indices[order], weights[order]
        if bool((np.diff(indices) == 0).any()):
            raise InvalidQuery("sparse: a cell is listed twice")
        bits = space.axis_bits(1)
        integers, rounding = on_grid(weights, bits)
        return canonical.cells_query(space, indices, integers, bits, rounding)

    def looked_at(self, space: Space) -> int:
        # One weight of all cells alike is written out along an axis.
        return space.shape[canonical.carrier_of(space)] if space.kind == "table" else super().looked_at(space)


class DenseQuery(Request):
    """A weight for every cell, row-major, flat or nested as the shape."""

    type: Literal["dense"]
    weights: list[Any]

    def compiled(self, space: Space) -> Query:
        if space.extent == "unbounded":
            raise does_not_fit(self.type, space)
        if _holds_booleans(self.weights):
            raise InvalidQuery("dense: weights must be numbers")
        try:
            weights = np.asarray(self.weights)
        except ValueError:
            raise InvalidQuery("dense: weights must be flat or nested as the shape") from None
        return dense_of(space, weights)


def _holds_booleans(weights: Sequence[Any]) -> bool:
    """Whether true or false stands among weights. NumPy takes them for 1 and 0 where there are numbers beside them."""
    kinds = set(map(type, weights))
    return bool in kinds or (list in kinds and any(_holds_booleans(part) for part in weights if type(part) is list))


def dense_of(space: Space, weights: Array) -> Query:
    """A query with a weight for every cell, flat (row-major) or of the space's shape.

    Raises:
        InvalidQuery: when the array is not numeric, of another size, a weight is out of [-1, 1], or the universe is
            unbounded.
    """
    if space.extent == "unbounded":
        raise does_not_fit("dense", space)
    if weights.dtype.kind not in "fiu":
        raise InvalidQuery("dense: weights must be numbers")
    if weights.shape not in (space.shape, (space.cells,)):
        raise InvalidQuery(f"dense: {space.cells} weights in the shape {list(space.shape)} are needed")
    weights = weights.reshape(space.shape)
    check_weights(weights)
    if space.symmetric and (bool(np.diagonal(weights).any()) or not np.array_equal(weights, weights.T)):
        raise InvalidQuery("dense: weights of an undirected graph must be symmetric with zero diagonal")
    if weights.dtype.itemsize > 8 and not np.array_equal(weights, weights.astype(np.float64)):
        raise InvalidQuery("dense: weights must be numbers of at most 64 bits")
    bits = space.axis_bits(1)
    integers, largest = np.empty(space.shape, dtype=np.int32), 0.0
    asked, kept = weights.reshape(-1), integers.reshape(-1)
    # Part by part: what is made on the way stays in caches, and takes no memory to speak of.
    for part in chunks(weights.size):
        scaled = np.ldexp(asked[part].astype(np.float64, copy=False), bits)
        rounded = np.rint(scaled)
        kept[part] = rounded
        scaled -= rounded
        largest = max(largest, float(scaled.max()), -float(scaled.min()))
    return canonical.dense_query(space, integers, bits, rounding_error(largest, bits))
