"""Multiplicative weights: entropic mirror descent on the simplex of the data's mass.

Source: GRU11 section 4.3 and algorithm 5; JT12 section 3 with the entropy potential.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from app.constructions import dense
from app.constructions.base import (
    BOUNDED_STEPS,
    MarginalConstruction,
    MeasuredQuery,
    PublicFacts,
    Step,
    check_zeta,
    simplex_reach,
    target_of,
)
from app.constructions.dumps import Dump, numbers
from app.constructions.refit import ENTROPIC_WORK, RefittingConstruction, dump_measurements, entropic, load_measurements
from app.geometry.potentials import reach, tilted_line
from app.geometry.projections import first_rate, solve
from app.spaces.partition import Marginal
from app.spaces.query import LinearQuery
from app.spaces.space import Space
from app.spaces.tensor import DenseTensor, FloatArray

#: Weights differ by 2^-40 at least, and masses by less than e^(2^10): no rate is of use beyond.
GREATEST_RATE = 2.0**50
#: Smallest part of a sum of float64 numbers that its rounding errors leave visible.
RESOLUTION = 2.0**-52


@dataclass
class WeightsState:
    """Cell masses in counts (a symmetric array holds each pair twice), the slack cell's, and what a refit keeps."""

    tensor: DenseTensor
    slack: float
    kept: list[MeasuredQuery] = field(default_factory=list)


@dataclass(frozen=True)
class MultiplicativeWeights(RefittingConstruction, MarginalConstruction):
    """MW over a universe of ``d`` cells and mass ``n``.

    With ``step="projection"`` an update is the entropic (Bregman) projection of h on ``{z: s<f,z> >= s*target}``
    within the simplex: ``h * exp(rate*f)``, normalised, with the rate at which the constraint becomes tight.
    For a 0/1 query that is the ratio of the odds of target and present mass; else a one-dimensional root on
    the masses at each weight. With ``step="paper"`` the rate is ``alpha/(2n)`` (GRU11, algorithm 5), or, where
    ``class_rate`` is false, JT12's ``mu alpha/zeta^2`` with this query's own zeta (mu is 1/n in counts). ``zeta`` is
    the promised bound on that of every query.

    Where the mass is an upper bound, one slack cell that no query touches takes the difference, so that the
    data stays inside the simplex and the bound holds.
    """

    refit_work: ClassVar[int] = ENTROPIC_WORK

    space: Space
    facts: PublicFacts
    step: Step
    progress: float
    class_rate: bool = True
    zeta: float | None = None

    def admit(self, query: LinearQuery) -> None:
        if self.zeta is not None:
            check_zeta(self._zeta(query), self.zeta)

    @property
    def mass(self) -> float:
        """Mass of the simplex in counts, the slack cell included."""
        assert self.facts.mass is not None, "the mass is public or bought before the first round"
        return self.facts.mass or 1.0  # without any mass the simplex is a point, and no guarantee is sought there

    @property
    def dimension(self) -> int:
        """Cells of the simplex."""
        return self.space.size + (1 if self.facts.padded else 0)

    def _measurements(self, state: WeightsState) -> int:
        return len(state.kept)

    def start(self) -> WeightsState:
        """The uniform hypothesis."""
        each = self.mass / self.dimension
        array = np.full(self.space.shape, each)
        if self.space.symmetric:
            np.fill_diagonal(array, 0.0)
        return WeightsState(DenseTensor(array), each if self.facts.padded else 0.0)

    def answer(self, state: WeightsState, query: LinearQuery) -> float:
        """<f, h> in counts."""
        return query.inner(state.tensor)

    def update(self, state: WeightsState, measurement: MeasuredQuery) -> None:
        """Scale the touched cells and normalise, in place."""
        query, n = measurement.query, self.mass
        low, high = query.range
        weights, masses = dense.levels(query, state.tensor)
        # Mass at weight 0. Where every cell weighs something that is the slack alone, and no rounding error.
        weightless = state.slack
        if low <= 0.0 <= high:
            weightless += max(0.0, n - state.slack - float(masses.sum()))
        present = float(weights @ masses)
        if self.step == "paper":
            rate = math.copysign(self._rate(self.progress, query), measurement.value - present)
        else:
            if self.facts.padded:
                low, high = min(low, 0.0), max(high, 0.0)
            least, most = simplex_reach(low, high, n)
            target = min(max(target_of(measurement, present, self.step), least), most)
            # Else nothing is certified, or the hypothesis is nearer to the boundary than a step would take it.
            useful = high > low and (target - present) * (measurement.value - present) > 0
            rate = _tilt(weights, masses, weightless, target) if useful else 0.0
        lightest, heaviest = reach(weights, masses)
        del weights, masses  # room for what scaling and refits take
        if rate != 0.0:
            # Exponents are counted from that of the heaviest factor, so that nothing overflows.
            top = rate * (heaviest if rate > 0 else lightest)
            top = max(top, 0.0) if weightless > 0 else top
            dense.scale_exp(query, state.tensor.array, rate, top)
            state.slack *= math.exp(-max(top, 0.0))
            self._normalise(state)
        if self.step == "refit":
            state.kept.append(measurement)
            state.slack = entropic(state.kept, state.tensor, state.slack, n, self.copies)

    def learn_cells(
        self, state: WeightsState, marginal: Marginal, present: FloatArray, values: FloatArray, noise_bound: float
    ) -> None:
        """Scale each cell that is off by the ratio of its odds, and all others by what is left to them."""
        assert self.step == "projection"
        n, factors, others = self.mass, np.ones(marginal.cells), 1.0
        least, most = simplex_reach(0.0, 1.0, n)
        gaps = np.abs(values - present).reshape(-1)
        for cell in np.argsort(-gaps, kind="stable")[: np.count_nonzero(gaps > noise_bound)].tolist():
            # What the updates before have made of the cell: all of them scaled it as one of the others.
            mass = min(present.item(cell) * others, n)
            gap = values.item(cell) - mass
            target = min(max(mass + math.copysign(max(abs(gap) - noise_bound, 0.0), gap), least), most)
            if (target - mass) * gap <= 0:
                continue
            part = min(max(mass / n, RESOLUTION), 1 - RESOLUTION)
            odds = target / (n - target) * ((1 - part) / part)
            factors[cell] = odds
            slack = state.slack * others
            others *= n / (mass * odds + slack + max(0.0, n - slack - mass))
        state.tensor.array *= marginal.spread((factors * others).reshape(marginal.shape), self.space.shape)
        state.slack *= others
        self._normalise(state)

    def _normalise(self, state: WeightsState) -> None:
        """Scale to the mass, by the sum that is really there: it drifts by no rounding error."""
        scale = self.mass / (float(state.tensor.array.sum()) / self.copies + state.slack)
        state.tensor.array *= scale
        state.slack *= scale
        state.tensor.touch()

    def dump(self, state: WeightsState) -> Dump:
        """Masses, the slack cell's, and what a refit keeps."""
        own = Dump({"masses": state.tensor.array, "slack": numbers(state.slack)})
        return own | dump_measurements(state.kept).within("kept")

    def load(self, dump: Dump) -> WeightsState:
        """The state that :meth:`dump` wrote."""
        slack = float(dump.arrays["slack"][0])
        return WeightsState(DenseTensor(dump.arrays["masses"]), slack, load_measurements(self.space, dump.part("kept")))

    @property
    def copies(self) -> int:
        """How often a mass stands in the array: that of an unordered pair twice."""
        return 2 if self.space.symmetric else 1

    def bound(self, progress: float) -> float | None:
        """``2 zeta^2 n^2 ln d / alpha^2``, with zeta = 1 as weights reach from -1 to 1; the paper's 4 n^2 ln d/alpha^2.

        Each update lowers the relative entropy KL(x/n || h/n) <= ln d by (alpha/n)^2 / (2 zeta^2): the Bregman
        projection moves the answer by at least alpha, and Pinsker turns that into divergence.
        """
        if self.facts.mass is None or self.step not in BOUNDED_STEPS:
            return None
        factor = 4.0 if self.step == "paper" and self.class_rate else 2 * self._largest_zeta**2
        return factor * (self.mass / progress) ** 2 * math.log(max(self.dimension, 2))

    def step_size(self, progress: float) -> float:
        """``alpha/(2n)``, the rate of GRU11's algorithm 5; or JT12's ``mu alpha/zeta^2`` at the largest zeta."""
        return progress / (2 * self.mass) if self.class_rate else progress / (self.mass * self._largest_zeta**2)

    def _rate(self, progress: float, query: LinearQuery) -> float:
        """The length of a step of the papers along a query."""
        if self.class_rate:
            return self.step_size(progress)
        zeta = self._zeta(query)
        return 0.0 if zeta == 0.0 else progress / (self.mass * zeta**2)

    @property
    def _largest_zeta(self) -> float:
        """Weights reach from -1 to 1 unless less was promised."""
        return 1.0 if self.zeta is None else min(self.zeta, 1.0)

    def _zeta(self, query: LinearQuery) -> float:
        """Half of the weights' spread: on the simplex a constant shift of the weights changes nothing."""
        low, high = query.range
        if self.facts.padded:
            low, high = min(low, 0.0), max(high, 0.0)
        return (high - low) / 2

    def dense(self, state: WeightsState) -> FloatArray:
        """Cell masses in counts; the slack cell is left out."""
        return state.tensor.array


def _tilt(weights: FloatArray, masses: FloatArray, weightless: float, target: float) -> float:
    """The rate at which masses tilted by ``exp(rate * weight)`` and normalised answer ``target``.

    Solves ``n sum w m e^{rate w} / (sum m e^{rate w} + weightless) = target``, monotone in the rate.
    """
    total = float(masses.sum()) + weightless
    if len(weights) == 1 and weights[0] == 1.0:
        # Masses below the resolution of their sum cannot be distinguished.
        present = min(max(float(masses[0]) / total, RESOLUTION), 1 - RESOLUTION)
        return math.log(target / (total - target)) - math.log(present / (1 - present))

    line = tilted_line(weights, masses, weightless)
    present = line(0.0)[0]
    low, high = min(float(weights.min()), 0.0), max(float(weights.max()), 0.0)
    guess = first_rate(1 / total, (high - low) / 2, target - present)
    return solve(line, target, guess, scale=total, most=GREATEST_RATE) if guess != 0 else 0.0
