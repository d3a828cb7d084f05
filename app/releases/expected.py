"""The expected errors of a release, from its design alone.

The best linear unbiased values of questions have variances that depend on what is measured and how noisily, never on
data: their root mean square is exact, and the largest of many errors has a bound, whatever they have in common.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.special import logsumexp

from app.estimation.tables.residuals import Residuals
from app.measurements.noise import Law, NoiseKind
from app.measurements.record import Measurement, Purchase
from app.measurements.strategies.tables import TableStrategy
from app.patience import still_wanted
from app.spaces.questions import Question
from app.spaces.tensor import FloatArray


@dataclass(frozen=True)
class Expected:
    """Errors to expect, in counts, of unbiased answers.

    Attributes:
        each: the root mean square error of each question, over all its numbers.
        rms: that over all numbers of all questions.
        largest: a bound on the expectation of the largest error of all numbers at once. With Gaussian noise of variance
            v the moment generating function is at most ``exp(v t^2/2)`` (Canonne, Kamath, Steinke 2020), with Laplace
            noise at most ``exp(v t^2/2 / (1 - v t^2/2))``, and ``E max |Z_i| <= inf over t of ln(sum of 2 E exp(t Z_i))
            / t``.
    """

    each: tuple[float, ...]
    rms: float
    largest: float

    def document(self) -> dict[str, Any]:
        """As JSON."""
        return {"root_mean_square": self.rms, "largest": self.largest}


def largest(kind: NoiseKind, variances: FloatArray, counts: FloatArray) -> float:
    """The bound of :class:`Expected` for so many numbers of each variance."""
    most = float(variances.max(initial=0.0))
    if most == 0:
        return 0.0

    def bound(t: float) -> float:
        still_wanted()
        exponents = variances * t * t / 2
        if kind == "laplace":
            exponents = exponents / (1 - exponents)
        return float(logsumexp(exponents, b=2 * counts)) / t

    # With Laplace noise the exponent is finite below the pole; with Gaussian noise the best t is below this one.
    pole = math.sqrt(2 / most) * (1 if kind == "laplace" else 1 + math.sqrt(math.log(2 * float(counts.sum()))))
    found = minimize_scalar(bound, bounds=(pole * 1e-3, pole * (1 - 1e-9)), method="bounded")
    return float(found.fun)


def proxy(noise: Law) -> float:
    """The variance that bounds the moment generating function of a measurement's noise: of continuous noise of its
    scale. (The discrete laws have less.)"""
    return float(noise.scale) ** 2 * (1 if noise.kind == "gaussian" else 2)


def unbiased(
    buys: Sequence[Purchase[TableStrategy]], questions: Sequence[Question], empty: Residuals
) -> Expected | None:
    """The errors of the best linear unbiased values from these measurements; None where some question has none.

    Args:
        buys: what is measured.
        questions: what is asked.
        empty: residuals of the table of which nothing is measured.
    """
    blank = [Measurement(buy.strategy, buy.noise, np.zeros(buy.strategy.cells, np.int64)) for buy in buys]
    known = empty.knowing(blank)
    found = [known.unbiased(question).variances.reshape(-1) for question in questions]
    ratio = max((proxy(buy.noise) / buy.noise.variance for buy in buys), default=1.0)
    return of(buys[0].added.kind, found, ratio) if buys else None


def of(kind: NoiseKind, variances: Sequence[FloatArray], ratio: float = 1.0) -> Expected | None:
    """The errors of values with these variances, question by question; None where one has none (NaN).

    ``ratio`` is by how much more than its variance bounds the moment generating function of the noise.
    """
    everything = np.concatenate(variances)
    if np.isnan(everything).any():
        return None
    told, counts = np.unique(everything, return_counts=True)
    return Expected(
        each=tuple(math.sqrt(float(each.mean())) for each in variances),
        rms=math.sqrt(float(everything.mean())),
        largest=largest(kind, ratio * told, counts.astype(np.float64)),
    )
