"""The fit of a whole table that was measured cell by cell at once.

Counts of single cells drown in noise where a table is sparse; sums of many do not. So the fit has two steps. The first
is the fit of :mod:`app.estimation.tables.local_fit` over all cells to the two-way marginals that the measured cells sum
to: a table without interactions of three attributes. The second is the same to the measured cells, with the first as
its base. With one measured value y of standard deviation sigma for each cell its dual falls apart: with s = strength *
sigma^2, base b and total n each fitted count is the root p of

    p = c b exp((y - p)/s),     hence     p = s omega(ln(c b/s) + y/s),

omega being Wright's function (the root of w + ln w = z), and c the one number for which all p sum to n. The work is a
few passes over the cells; the first step is left out where it would be more than that.
"""

from __future__ import annotations

import itertools
import math
from collections import OrderedDict
from collections.abc import Callable

import numpy as np
from scipy.sparse import csc_array
from scipy.special import wrightomega

from app.estimation.solving import Solved
from app.estimation.tables.dual import Dual
from app.estimation.tables.posterior import incidence
from app.estimation.tables.residuals import Residuals
from app.estimation.tables.restrictions import Values
from app.spaces.partition import Marginal, Partition
from app.spaces.questions import Question
from app.spaces.tensor import FloatArray, IntArray, along

#: How entropy is weighed against what was measured: strength times sigma.
STRENGTH = 0.5
#: Up to so many cells times pairs of attributes two-way marginals are fitted, to this part of a value's deviation.
_MOST_PAIRED, _TOLERANCE = 1 << 21, 1e-3
#: No cell's share of such a fit is less.
_LEAST_SHARE = 1e-15
#: Newton steps for c at most; they end where its logarithm moves by less than this, and what the counts then sum to
#: lacks at most this part of the total.
_MOST_STEPS, _SMALL, _LACKING = 100, 1e-12, 1e-9
#: How many marginals are remembered.
_MOST_MARGINALS = 256


def fitted(values: FloatArray, deviation: float, base: FloatArray, total: float) -> Solved[FloatArray]:
    """The fitted counts of all cells.

    Args:
        values: measured, one a cell.
        deviation: standard deviation of each.
        base: not negative, in the same shape; where it is zero nothing is.
        total: what the fitted counts sum to, positive.
    """
    scale = STRENGTH * deviation
    with np.errstate(divide="ignore"):
        known = np.log(base / base.sum() / scale) + values / scale
    # The sum is increasing and convex in ln c: from the right of the root Newton's steps stay there.
    log = float(np.log(total))
    mass = math.inf
    for _ in range(_MOST_STEPS):
        omega = wrightomega(known + log)
        mass = float(omega.sum()) * scale
        step = (mass - total) / (scale * float((omega / (1 + omega)).sum()))
        log -= max(min(step, 30.0), -30.0)
        if abs(step) < _SMALL:
            break
    counts = scale * wrightomega(known + log)
    gap = abs(mass / total - 1) / _LACKING
    return Solved(np.asarray(counts * (total / counts.sum())), "converged" if gap <= 1 else "steps", gap)


def paired(values: FloatArray, deviation: float, base: FloatArray, total: float) -> Solved[FloatArray]:
    """Shares of the cells as the two-way marginals of measured values tell them; the base where that is too much work,
    or where they are not found.

    Args:
        values: measured, one a cell.
        deviation: standard deviation of each.
        base: shares by the one-way marginals; zero where nothing is.
        total: number of records, positive.
    """
    shape, cells = values.shape, values.size
    pairs = list(itertools.combinations(range(len(shape)), 2))
    if len(shape) < 3 or cells * len(pairs) > _MOST_PAIRED:
        return Solved(base, "converged", 0.0)
    known = []
    for pair in pairs:
        labels = np.zeros([1] * len(shape))
        for axis in pair:
            labels = labels * shape[axis] + along(np.arange(float(shape[axis])), axis, len(shape))
        sums = values.sum(axis=tuple(k for k in range(len(shape)) if k not in pair)).reshape(-1)
        sums = sums + (total - sums.sum()) / len(sums)
        variances = np.full(len(sums), deviation**2 * cells / len(sums))
        flat: IntArray = np.broadcast_to(labels, shape).reshape(-1).astype(np.int64)
        known.append(Values(Marginal.of(shape, dict.fromkeys(pair)), flat, sums, variances))
    variances = np.concatenate([k.variances for k in known])
    strength = math.exp(-0.5 * float(np.mean(np.log(variances))))
    sums = np.concatenate([k.values for k in known])
    inside = np.flatnonzero(base)
    counted = incidence(known, cells)
    counted = counted if len(inside) == cells else csc_array(counted[:, inside])
    dual = Dual(counted, base.reshape(-1)[inside], total, sums, strength * variances)
    solved = dual.solve(np.zeros(len(sums)), _TOLERANCE * np.sqrt(variances))
    if not solved.converged:
        return Solved(base, solved.reason, solved.gap)
    shares = np.zeros(shape)
    shares.reshape(-1)[inside] = np.maximum(solved.value[1] / total, _LEAST_SHARE)
    return Solved(np.asarray(shares / shares.sum()), solved.reason, solved.gap)


def whole_table(residuals: Residuals, shares: Callable[[int], FloatArray]) -> DenseFit | None:
    """The fit of a table all cells of which were measured at once; None where they were not.

    Args:
        residuals: which have taken in all that was measured.
        shares: the best known shares of an attribute's values.
    """
    sizes = residuals.sizes
    everything = Marginal.of(sizes, dict.fromkeys(range(len(sizes))))
    found = [m for m in residuals.measurements if m.marginal == everything]
    if not found:
        return None
    precision = sum(1 / m.variance for m in found)
    values = sum((m.values / m.variance for m in found), np.zeros(everything.shape)) / precision
    base = np.ones(())
    for attribute in everything.attributes:
        base = base[..., None] * shares(attribute)
    possible = residuals.zeros.possible(everything.attributes, [Partition.singles(n) for n in everything.shape])
    if possible is not None:
        base = base * possible
    total, deviation = max(float(residuals.total.values), 1.0), precision**-0.5
    start = paired(values, deviation, base / base.sum(), total)
    counts = fitted(values, deviation, start.value, total)
    return DenseFit(counts.value.reshape(sizes), converged=start.converged and counts.converged)


class DenseFit:
    """Fitted counts of every cell of a table, and sums of them; ``converged`` says whether both steps met their
    tolerance.
    """

    def __init__(self, counts: FloatArray, *, converged: bool) -> None:
        self._counts, self.converged = counts, converged
        self._marginals: OrderedDict[tuple[int, ...], FloatArray] = OrderedDict()

    @property
    def nbytes(self) -> int:
        """The bytes of the counts, and of the sums that are remembered."""
        return self._counts.nbytes + sum(found.nbytes for found in self._marginals.values())

    def values(self, question: Question) -> FloatArray:
        """The answers of the fitted counts, in the shape of the question."""
        attributes = question.attributes
        found = self._marginals.get(attributes)
        if found is None:
            outside = tuple(a for a in range(self._counts.ndim) if a not in attributes)
            found = self._marginals[attributes] = self._counts.sum(axis=outside)
            while len(self._marginals) > _MOST_MARGINALS:
                self._marginals.popitem(last=False)
        self._marginals.move_to_end(attributes)
        return question.of(found, [Partition.singles(n) for n in found.shape])
