"""The fit of a whole table that was measured cell by cell at once, in closed form.

It is the fit of :mod:`app.evidence.fits` over all cells. With one measured value y of standard deviation sigma for each
cell the dual falls apart: with s = strength * sigma^2, base b and total n each fitted count is the root p of

    p = c b exp((y - p)/s),     hence     p = s omega(ln(c b/s) + y/s),

omega being Wright's function (the root of w + ln w = z), and c the one number for which all p sum to n. The work is a
few passes over the cells.
"""

from __future__ import annotations

from collections import OrderedDict

import numpy as np
from scipy.special import wrightomega

from app.evidence.measurements import Partition
from app.evidence.questions import Question
from app.spaces.tensor import FloatArray

#: How entropy is weighed against what was measured: strength times sigma.
STRENGTH = 0.4
#: Newton steps for c at most; its logarithm moves by less than this in the last.
_MOST_STEPS, _SMALL = 100, 1e-12
#: How many marginals are remembered.
_MOST_MARGINALS = 256


def fitted(values: FloatArray, deviation: float, base: FloatArray, total: float) -> FloatArray:
    """The fitted counts of all cells.

    Args:
        values: measured, one a cell.
        deviation: standard deviation of each.
        base: positive, in the same shape.
        total: what the fitted counts sum to, positive.
    """
    scale = STRENGTH * deviation
    known = np.log(base / base.sum() / scale) + values / scale
    # The sum is increasing and convex in ln c: from the right of the root Newton's steps stay there.
    log = float(np.log(total))
    for _ in range(_MOST_STEPS):
        omega = wrightomega(known + log)
        mass = float(omega.sum()) * scale
        step = (mass - total) / (scale * float((omega / (1 + omega)).sum()))
        log -= max(min(step, 30.0), -30.0)
        if abs(step) < _SMALL:
            break
    counts = scale * wrightomega(known + log)
    return np.asarray(counts * (total / counts.sum()))


class DenseFit:
    """Fitted counts of every cell of a table, and sums of them."""

    def __init__(self, counts: FloatArray) -> None:
        self._counts = counts
        self._marginals: OrderedDict[tuple[int, ...], FloatArray] = OrderedDict()

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
