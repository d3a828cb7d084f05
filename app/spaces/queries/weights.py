"""Weights as they are asked for, put on the grid: along axes, whose product is taken."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from app.spaces.errors import InvalidQuery
from app.spaces.queries import canonical
from app.spaces.queries.linear import CompiledZero
from app.spaces.query import Query
from app.spaces.rounding import bounding, rounding_error
from app.spaces.space import Space
from app.spaces.tensor import Array, FloatArray, Members, count_of


def check_weights(weights: FloatArray, low: float = -1.0) -> None:
    """Raise InvalidQuery unless all weights are finite and in [low, 1]."""
    if not weights.size:
        return
    smallest, largest = float(weights.min()), float(weights.max())
    # A NaN makes both comparisons false.
    if not (smallest >= low and largest <= 1.0):
        raise InvalidQuery(f"weights must be finite and lie in [{low:g}, 1]")


def axis_weights(values: Sequence[float] | Array, length: int, what: str) -> FloatArray:
    """All weights along an axis.

    Raises:
        InvalidQuery: when they are not as many as the axis is long.
    """
    vector = np.asarray(values, dtype=np.float64)
    if vector.shape != (length,):
        raise InvalidQuery(f"{what}: {length} weights are needed, {vector.size} are given")
    return vector


def product(space: Space, given: Mapping[int, Members | FloatArray]) -> Query:
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
        return CompiledZero(space.shape)
    if not weighted:
        return canonical.product_query(space, members, {}, 1, 0, 0.0)
    # |prod w - prod w'| <= sum_i |w_i - w'_i| prod_{j != i} max(|w_j|, |w'_j|), the product taken factor by factor.
    errors: dict[int, float] = {}
    largest: dict[int, float] = {}
    while True:
        bits = space.axis_bits(len(weighted)) if weighted else 0
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
            return canonical.product_query(space, members, integers, 1, bits * len(integers), rounding)
