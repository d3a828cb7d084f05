"""Frieze/Kannan: Euclidean steps along the missed query, from the zero hypothesis.

Source: GRU11 section 4.2 and algorithm 2; JT12 with the potential ||z||_2^2.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from app.constructions import dense
from app.constructions.base import (
    BOUNDED_STEPS,
    MarginalConstruction,
    MeasuredQuery,
    PublicFacts,
    Step,
    target_of,
)
from app.constructions.dumps import Dump
from app.constructions.refit import Kept, RefittingConstruction, euclidean
from app.spaces.partition import Marginal
from app.spaces.queries.linear import CompiledPair, CompiledProduct
from app.spaces.query import LinearQuery
from app.spaces.space import Space
from app.spaces.tensor import DenseTensor, FloatArray, LowRankTensor


@dataclass
class CutState:
    """The hypothesis in counts: signed rank-one terms while those are fewer numbers, else a dense array.

    ``kept`` is for refits: the measurements, and the hypothesis' coefficients on their queries.
    """

    tensor: LowRankTensor | DenseTensor
    kept: Kept = field(default_factory=Kept)


@dataclass(frozen=True)
class FriezeKannan(RefittingConstruction, MarginalConstruction):
    """FK over a universe of ``|X|`` cells.

    With ``step="projection"`` an update is the Euclidean projection of h on ``{z: s<f,z> >= s*target}``:
    ``h + (target - <f,h>)/||f||_2^2 * f``. With ``step="paper"`` it is ``h + s*(alpha/|X|)*f``. Either way
    ``||x - h||_2^2`` falls by at least ``alpha^2/|X|`` an update. ``step="refit"`` moves to the nearest point that
    agrees with all released values: a combination of all queries learnt.

    For cuts and rank-one queries of a graph the hypothesis is a sum of signed rank-one terms and becomes a
    matrix only when that holds fewer numbers, or when a query of another shape is learnt.
    """

    space: Space
    facts: PublicFacts
    step: Step
    progress: float

    def _measurements(self, state: CutState) -> int:
        return len(state.kept.measurements)

    def start(self) -> CutState:
        """The zero hypothesis."""
        return CutState(self._zero())

    def _zero(self) -> LowRankTensor | DenseTensor:
        return self._no_terms() or DenseTensor(np.zeros(self.space.shape))

    def _no_terms(self) -> LowRankTensor | None:
        """A sum without terms, where the space has such."""
        if len(self.space.shape) != 2 or self.space.kind == "table":
            return None
        rows, columns = self.space.shape
        return LowRankTensor((rows, columns), symmetric=self.space.symmetric)

    def answer(self, state: CutState, query: LinearQuery) -> float:
        """<f, h> in counts."""
        return query.inner(state.tensor)

    def update(self, state: CutState, measurement: MeasuredQuery) -> None:
        """Add a multiple of the query, in place."""
        query = measurement.query
        norm2sq = query.norm2sq
        if norm2sq == 0.0:
            return
        if self.step == "refit":
            self._refit(state, measurement)
            return
        present = query.inner(state.tensor)
        if self.step == "paper":
            scale = math.copysign(self.step_size(self.progress), measurement.value - present)
        else:
            scale = (target_of(measurement, present, self.step) - present) / norm2sq
        self._add(state, [(scale, query)])

    def learn_cells(
        self, state: CutState, marginal: Marginal, present: FloatArray, values: FloatArray, noise_bound: float
    ) -> None:
        """Spread what each cell is off beyond its noise evenly over it."""
        assert self.step == "projection"
        assert isinstance(state.tensor, DenseTensor), "a hypothesis over a table is one"
        gaps = values - present
        off = np.copysign(np.maximum(np.abs(gaps) - noise_bound, 0.0), gaps)
        state.tensor.array += marginal.spread(off / marginal.within(self.space.shape), self.space.shape)
        state.tensor.touch()

    def _refit(self, state: CutState, measurement: MeasuredQuery) -> None:
        """The refit of the present hypothesis to all measurements; see :mod:`app.constructions.refit`."""
        kept = state.kept
        kept.keep(measurement, self._inner)
        change = euclidean(kept, np.array([m.query.inner(state.tensor) for m in kept.measurements]))
        kept.coefficients += change
        queries = [m.query for m in kept.measurements]
        if isinstance(state.tensor, LowRankTensor):
            # Terms made anew, one set a query, instead of one more for each of its changes.
            state.tensor = self._zero()
            change = kept.coefficients
        self._add(state, list(zip(change.tolist(), queries, strict=True)))

    def _inner(self, left: LinearQuery, right: LinearQuery) -> float:
        """<f, g> of two queries."""
        terms = self._no_terms()
        if terms is not None and isinstance(right, CompiledPair | CompiledProduct):
            dense.add_terms(right, terms, 1.0)
            return left.inner(terms)
        return left.inner(DenseTensor(dense.matrix_of(right, self.space.shape)))

    def _add(self, state: CutState, terms: list[tuple[float, LinearQuery]]) -> None:
        """Add multiples of queries to the hypothesis."""
        for scale, query in terms:
            if isinstance(state.tensor, LowRankTensor) and isinstance(query, CompiledPair | CompiledProduct):
                dense.add_terms(query, state.tensor, scale)
                if state.tensor.dense_is_cheaper:
                    state.tensor = DenseTensor(state.tensor.dense())
            else:
                if isinstance(state.tensor, LowRankTensor):
                    state.tensor = DenseTensor(state.tensor.dense())
                dense.add_to(query, state.tensor.array, scale)
        if isinstance(state.tensor, DenseTensor):
            state.tensor.touch()

    def dump(self, state: CutState) -> Dump:
        """Terms or cells, and what a refit keeps."""
        kept = state.kept.dump().within("kept")
        if isinstance(state.tensor, DenseTensor):
            return Dump({"cells": state.tensor.array}) | kept
        scales, left, right = state.tensor.factors
        diagonal = {} if state.tensor.diagonal is None else {"diagonal": state.tensor.diagonal}
        return Dump({"scales": scales, "left": left, "right": right, **diagonal}) | kept

    def load(self, dump: Dump) -> CutState:
        """The state that :meth:`dump` wrote."""
        kept, arrays = Kept.load(self.space, dump.part("kept")), dump.arrays
        if "cells" in arrays:
            return CutState(DenseTensor(arrays["cells"]), kept)
        factors = arrays["scales"], arrays["left"], arrays["right"]
        return CutState(LowRankTensor.of(factors, diagonal=arrays.get("diagonal")), kept)

    def bound(self, progress: float) -> float | None:
        """``||x||_2^2 |X| / alpha^2`` (GRU11, theorem 4.4).

        ``||x||_2^2`` is at most n for weights in [0, 1], at most n^2 for counts, and at most M^2 a cell where
        entries are bounded by M, whether n is known or not.
        """
        if self.step not in BOUNDED_STEPS:
            return None
        norm2sq = self.space.norm2sq_bound(self.facts.mass)
        return None if norm2sq is None else norm2sq * self.space.size / progress**2

    def step_size(self, progress: float) -> float:
        """``alpha/|X|``, what the paper's step adds to each touched cell."""
        return progress / self.space.size

    def dense(self, state: CutState) -> FloatArray:
        """The hypothesis as an array."""
        return state.tensor.dense() if isinstance(state.tensor, LowRankTensor) else state.tensor.array
