"""Cuts of graphs and sums of blocks of matrices, and the same with weights: what a side and a side together weigh."""

from __future__ import annotations

from typing import Literal

import numpy as np

from app.spaces.queries import canonical
from app.spaces.queries.linear import CompiledZero
from app.spaces.queries.request import Nodes, Request, Weights, does_not_fit
from app.spaces.queries.weights import axis_weights, check_weights, product
from app.spaces.query import Query
from app.spaces.sided import SidedSpace
from app.spaces.space import Space
from app.spaces.tensor import FloatArray


class CutQuery(Request):
    """The weight of all edges from ``left`` to ``right`` (of a graph: between S and T)."""

    type: Literal["cut"]
    left: Literal["all"] | Nodes
    right: Literal["all"] | Nodes

    def compiled(self, space: Space) -> Query:
        if not isinstance(space, SidedSpace):
            raise does_not_fit(self.type, space)
        left, right = space.members(self.left, 0, "left"), space.members(self.right, 1, "right")
        if space.symmetric:
            return canonical.pair_query(space, left, right, bits=0, rounding=0.0)
        return product(space, {0: left, 1: right})

    def looked_at(self, space: Space) -> int:
        return 0 if isinstance(space, SidedSpace) and not space.symmetric else super().looked_at(space)


class RankOneQuery(Request):
    """u'Xv for weight vectors u = ``left`` and v = ``right``.

    The noise and the error bound are the same whatever the weights: for the mean of a block ask its sum, with weights 0
    and 1, and divide its value and its error bound by the number of cells. Weights of one over that number would leave
    the whole error bound on a number that much smaller.
    """

    type: Literal["rank_one"]
    left: Weights
    right: Weights

    def compiled(self, space: Space) -> Query:
        if not isinstance(space, SidedSpace):
            raise does_not_fit(self.type, space)
        u = axis_weights(self.left, space.shape[0], "left")
        v = axis_weights(self.right, space.shape[1], "right")
        return _undirected_rank_one(space, u, v) if space.symmetric else product(space, {0: u, 1: v})


def _undirected_rank_one(space: Space, u: FloatArray, v: FloatArray) -> Query:
    check_weights(u, low=0.0)
    check_weights(v, low=0.0)
    if not u.any() or not v.any():
        return CompiledZero(space.shape)
    if bool(np.all((u == 0) | (u == 1)) and np.all((v == 0) | (v == 1))):
        return canonical.pair_query(space, np.flatnonzero(u), np.flatnonzero(v), bits=0, rounding=0.0)
    bits = space.axis_bits(2)
    sides = [np.rint(np.ldexp(side, bits)) for side in (u, v)]
    errors = [
        float(np.abs(side - np.ldexp(asked, bits)).max()) * 2.0**-bits
        for side, asked in zip(sides, (u, v), strict=True)
    ]
    # Each side enters twice and w = u*v, off by both errors and its own rounding up, twice again.
    own = 0.0 if bool(np.all(u * v == 0)) else 2.0**-bits
    rounding = 2 * (errors[0] + errors[1]) + 2 * (errors[0] + errors[1] + own)
    return canonical.pair_query(space, *(side.astype(np.int64) for side in sides), bits=bits, rounding=rounding)
