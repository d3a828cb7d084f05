"""What errors are to be expected of a release, from its design alone.

The best linear unbiased values of a workload's questions have variances that depend on what is measured and how
noisily, never on data: their root mean square is exact. The largest of many errors is told by its median as if all
errors were independent and normal: where they are normal and not independent the median is no larger (Sidak 1967: that
all of them stay within their bounds is at least as likely as the product of each one's probability says).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from scipy.optimize import brentq
from scipy.special import ndtr

from app.evidence.measurements import Noise
from app.evidence.policy import Buy
from app.evidence.residuals import Residuals
from app.evidence.strategies import Release
from app.releases.workloads import Marginals, Sums
from app.spaces.tensor import FloatArray

#: How an expectation is meant: it is that of the method's errors, or they are no larger.
Basis = Literal["exact", "at most"]


@dataclass(frozen=True)
class Expected:
    """Errors of a workload's answers, in counts.

    Attributes:
        root_mean_square: over all numbers that are asked for.
        largest: the median of the largest absolute error.
        basis: whether that is what to expect, or no more than that is.
    """

    root_mean_square: float
    largest: float
    basis: Basis = "exact"

    def document(self) -> dict[str, Any]:
        """As JSON."""
        return {"root_mean_square": self.root_mean_square, "largest": self.largest, "basis": self.basis}


def unbiased(buys: Sequence[Buy], workload: Marginals | Sums, empty: Residuals) -> Expected | None:
    """The errors of the best linear unbiased values from these measurements; None where some question has none.

    Args:
        buys: what is measured.
        workload: what is asked.
        empty: residuals of the table of which nothing is measured.
    """
    for buy in buys:
        zeros = np.zeros(buy.strategy.cells, np.int64)
        for moment, piece in Release(buy.strategy, Noise(buy.kind, buy.scale, 0), zeros).pieces:
            if moment is None:
                empty.add(piece)
    variances = [empty.unbiased(question).variances.reshape(-1) for question in workload.questions]
    return of(np.concatenate(variances))


def of(variances: FloatArray) -> Expected | None:
    """The errors of values with these variances; None where one has none (NaN)."""
    if np.isnan(variances).any():
        return None
    return Expected(math.sqrt(float(variances.mean())), largest(np.sqrt(variances)))


def largest(deviations: FloatArray) -> float:
    """The median of the largest absolute value of independent normal numbers with these standard deviations.

    It is the root t of ``sum of ln P(|Z_i| <= t) = -ln 2``, of which equal deviations are summed at once.
    """
    told, counts = np.unique(np.asarray(deviations)[np.asarray(deviations) > 0], return_counts=True)
    if not len(told):
        return 0.0

    def excess(level: float) -> float:
        tails = 2 * ndtr(-level / told)
        return float((counts * np.log1p(-np.minimum(tails, 1 - 1e-16))).sum()) + math.log(2)

    high = float(told[-1]) * math.sqrt(2 * math.log(4 * counts.sum()))
    return float(brentq(excess, 1e-9 * float(told[-1]), high))
