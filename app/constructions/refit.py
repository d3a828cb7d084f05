"""Refits: after an update, the hypothesis nearest to the present one that agrees with all released values.

With answers a(z), released values y and noise bounds L (proportional to the noise's standard deviation, so weights are
1/variance up to one factor) the hypothesis becomes

    argmin_z  1/2 sum_j ((a_j(z) - y_j) / L_j)^2 + kappa D(z; h),

h being the present hypothesis and D the squared Euclidean distance over 2, or the relative entropy over the simplex.
kappa is so small that it moves an answer by a 2^-8th of L or so: it decides between the hypotheses that fit
equally well, and keeps the problem well posed. This is mirror descent from h on the released values, run to its
limit: Euclidean steps are solved at once in the span of the queries, entropic ones query by query.

All of it is a function of released values: free of privacy cost, and a replay reproduces it. It has no bound of
updates.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from app.constructions.base import Measurement
from app.geometry.norms import FloatArray
from app.geometry.potentials import Line, tilted_line
from app.geometry.projections import first_rate, solve
from app.spaces.query import Query

#: How far kappa may move an answer, as a part of the noise bound.
SLACK = 2.0**-8
#: Entropic refits end when the duality gap of the objective, whose unit is half of a squared noise bound, is below.
TOLERANCE = 1e-6
_MOST_SWEEPS = 500
#: Targets keep this distance, as a part of the mass, from what the simplex can just reach.
_MARGIN = 2.0**-30
#: Distances below this part of the mass are rounding.
_RESOLUTION = 2.0**-44


@dataclass
class Kept:
    """The measurements so far, their inner products, and the hypothesis' coefficients on them."""

    measurements: list[Measurement] = field(default_factory=list)
    gram: FloatArray = field(default_factory=lambda: np.zeros((0, 0)))
    coefficients: FloatArray = field(default_factory=lambda: np.zeros(0))

    def keep(self, measurement: Measurement, inner: Callable[[Query, Query], float]) -> None:
        """Take one more measurement in; ``inner`` is <f, g> of two queries."""
        self.measurements.append(measurement)
        row = np.array([inner(known.query, measurement.query) for known in self.measurements])
        gram = np.zeros((len(row), len(row)))
        gram[:-1, :-1] = self.gram
        gram[-1], gram[:, -1] = row, row
        self.gram = gram
        self.coefficients = np.append(self.coefficients, 0.0)


def euclidean(kept: Kept, answers: FloatArray) -> FloatArray:
    """The c with ``z = h + sum_j c_j f_j`` the refit of h, whose present answers are given.

    Solves ``(G + kappa diag(L^2)) c = y - a``, G the inner products of the queries.
    """
    bounds = np.array([m.noise_bound for m in kept.measurements])
    residuals = np.array([m.value for m in kept.measurements]) - answers
    lengths = np.diagonal(kept.gram)
    # An answer that is r off gets a coefficient of about r / ||f||^2, which leaves it kappa L^2 r / ||f||^2 off.
    kappa = SLACK * float((lengths / (bounds * np.maximum(np.abs(residuals), bounds))).min())
    return np.asarray(np.linalg.solve(kept.gram + kappa * np.diag(bounds**2), residuals), dtype=np.float64)


@dataclass(frozen=True)
class Tilt:
    """A query against masses of a simplex: weights that occur, mass at each, mass of weight zero, reach of answers."""

    weights: FloatArray
    masses: FloatArray
    rest: float
    low: float
    high: float


def entropic(
    measurements: list[Measurement],
    mass: float,
    look: Callable[[Query], Tilt],
    move: Callable[[Query, Tilt, float], None],
) -> None:
    """Refit masses of a simplex in place.

    The solution is ``h exp(sum_j c_j f_j)``, normalised. Each step solves the optimality condition of one query,
    ``(a_j - y_j)/L_j^2 + kappa c_j = 0``, which is coordinate ascent on the dual, in turn until the duality gap
    ``1/2 sum_j ((a_j - y_j)/L_j + kappa L_j c_j)^2`` is below the tolerance. Values out of the simplex' reach are
    taken to lie just within.

    Args:
        measurements: all released values.
        mass: mass of the simplex in counts.
        look: a query against the present masses.
        move: multiplies them by ``exp(rate * weight)`` and normalises.
    """
    kappa = SLACK / max(m.noise_bound for m in measurements)
    tilts = [0.0] * len(measurements)
    for _ in range(_MOST_SWEEPS):
        gap = 0.0
        for j, measurement in enumerate(measurements):
            query, bound = measurement.query, measurement.noise_bound
            tilt = look(query)
            margin = _MARGIN * (tilt.high - tilt.low)
            if margin == 0.0:
                continue
            value = min(max(measurement.value, (tilt.low + margin) * mass), (tilt.high - margin) * mass)
            stiffness = kappa * bound**2
            balance = _balance(tilted_line(tilt.weights, tilt.masses, tilt.rest), stiffness, tilts[j])
            excess = balance(0.0)[0] - value
            gap += (excess / bound) ** 2 / 2
            if abs(excess) <= _RESOLUTION * mass:
                continue
            guess = first_rate(1 / mass, (tilt.high - tilt.low) / 2, -excess)
            rate = solve(balance, value, guess, scale=mass)
            tilts[j] += rate
            move(query, tilt, rate)
        if gap <= TOLERANCE:
            break


def _balance(line: Line, stiffness: float, tilt: float) -> Line:
    """rate -> answer + stiffness * (tilt + rate)."""

    def at(rate: float) -> tuple[float, float]:
        answer, slope = line(rate)
        return answer + stiffness * (tilt + rate), slope + stiffness

    return at
