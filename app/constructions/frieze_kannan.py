"""Frieze/Kannan: Euclidean steps along the missed query, from the zero hypothesis.

Source: GRU11 section 4.2 and algorithm 2; JT12 with the potential ||z||_2^2.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from app.constructions.base import Construction, Measurement, PublicFacts, Step, certified
from app.spaces.query import PairQuery, ProductQuery, Query
from app.spaces.space import Space
from app.spaces.tensor import DenseTensor, FloatArray, LowRankTensor


@dataclass
class CutState:
    """The hypothesis in counts: signed rank-one terms while those are fewer numbers, else a dense array."""

    tensor: LowRankTensor | DenseTensor


@dataclass(frozen=True)
class FriezeKannan(Construction):
    """FK over a universe of ``|X|`` cells.

    With ``step="projection"`` an update is the Euclidean projection of h on ``{z: s<f,z> >= s*target}``:
    ``h + (target - <f,h>)/||f||_2^2 * f``. With ``step="paper"`` it is ``h + s*(alpha/|X|)*f``. Either way
    ``||x - h||_2^2`` falls by at least ``alpha^2/|X|`` an update.

    For cuts and rank-one queries of a graph the hypothesis is a sum of signed rank-one terms and becomes a
    matrix only when that holds fewer numbers, or when a query of another shape is learnt.
    """

    space: Space
    facts: PublicFacts
    step: Step
    progress: float

    def start(self) -> CutState:
        """The zero hypothesis."""
        if len(self.space.shape) == 2 and self.space.kind != "table":
            rows, columns = self.space.shape
            return CutState(LowRankTensor((rows, columns), symmetric=self.space.symmetric))
        return CutState(DenseTensor(np.zeros(self.space.shape)))

    def answer(self, state: CutState, query: Query) -> float:
        """<f, h> in counts."""
        return query.inner(state.tensor)

    def update(self, state: CutState, measurement: Measurement) -> None:
        """Add a multiple of the query, in place."""
        query = measurement.query
        norm2sq = query.norm2sq
        present = query.inner(state.tensor)
        if norm2sq == 0.0:
            return
        if self.step == "paper":
            scale = math.copysign(self.step_size(self.progress), measurement.value - present)
        else:
            scale = (certified(measurement, present) - present) / norm2sq
        if isinstance(state.tensor, LowRankTensor) and isinstance(query, PairQuery | ProductQuery):
            query.add_terms(state.tensor, scale)
            if state.tensor.dense_is_cheaper:
                state.tensor = DenseTensor(state.tensor.dense())
            return
        if isinstance(state.tensor, LowRankTensor):
            state.tensor = DenseTensor(state.tensor.dense())
        query.add_to(state.tensor.array, scale)
        state.tensor.touch()

    def bound(self, progress: float) -> float | None:
        """``||x||_2^2 |X| / alpha^2`` (GRU11, theorem 4.4).

        ``||x||_2^2`` is at most n for weights in [0, 1], at most n^2 for counts, and at most M^2 a cell where
        entries are bounded by M, whether n is known or not.
        """
        norm2sq = self.space.norm2sq_bound(self.facts.mass)
        return None if norm2sq is None else norm2sq * self.space.size / progress**2

    def step_size(self, progress: float) -> float:
        """``alpha/|X|``, what the paper's step adds to each touched cell."""
        return progress / self.space.size

    def dense(self, state: CutState) -> FloatArray:
        """The hypothesis as an array."""
        return state.tensor.dense() if isinstance(state.tensor, LowRankTensor) else state.tensor.array
