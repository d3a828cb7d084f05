"""How the records of a group are spread over numbers, from noisy numbers of records below some of them.

Where noise is great beside a group, what was counted says little of where its quantiles are, and how all records are
spread says more. With ``F`` the part of the records that is expected below a place, the true part is taken to differ by

- a shift and a stretch of the whole, ``F (1 - F)`` and ``F (1 - F) (1 - 2F)`` times normal factors,
- and a Brownian bridge, which is rough: two places have the covariance ``min(F_i, F_j) - F_i F_j``.

Noise is taken to be normal, and what is shown is the posterior mean: with ``K`` the covariance of the difference, ``S``
that of noise and ``d`` the difference that was counted, ``F + K (K + S)^-1 d`` (Rasmussen and Williams, Gaussian
Processes for Machine Learning, equation 2.25). Of the number of all records nothing is expected: ``d`` are counts less
``F`` times the counted total, and ``S`` is the covariance of these.

Intervals do not come from here: they hold whatever the spread.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from app.spaces.tensor import FloatArray


@dataclass(frozen=True)
class Leeway:
    """How far parts of records below places may be from what is expected.

    Attributes:
        smooth: the variance of the factor of a shift, and a quarter of that of a stretch.
        rough: what multiplies the covariance of the bridge.
        even: the part of the records that is expected as many in every range. Ranges end where something may be, so
            that none is expected to have next to nobody.
    """

    smooth: float
    rough: float
    even: float


#: All records, of which only bounds and declared cells say something: half of them may as well be nearly all.
ANYHOW = Leeway(4.0, 0.3, 0.3)
#: A group beside all records: its median may well be a quartile of all, but hardly are some of its numbers many that
#: are few of all.
AS_ALL = Leeway(2.0, 0.006, 0.1)


def likely(masses: FloatArray, below: FloatArray, covariance: FloatArray, leeway: Leeway) -> FloatArray:
    """The parts of the records below the ends of ranges.

    Args:
        masses: about how many records are expected in each range, of two ranges or more, as parts of any sum.
        below: the number of records that was counted below the end of each range; the last is that of all.
        covariance: of these; that of the last may be zero.
        leeway: how far parts below the ends may be from what is expected.

    Returns:
        Parts between 0 and 1, one for each end but the last. They may fall where what was counted does.
    """
    expected = np.cumsum((1 - leeway.even) * masses / masses.sum() + leeway.even / len(masses))[:-1]
    total = max(float(below[-1]), math.sqrt(max(float(covariance[-1, -1]), 0.0)), 1.0)
    off = (below[:-1] - expected * below[-1]) / total
    shared = np.outer(expected, covariance[:-1, -1])
    noise = covariance[:-1, :-1] - shared - shared.T + covariance[-1, -1] * np.outer(expected, expected)
    shift = expected * (1 - expected)
    stretch = 2 * shift * (1 - 2 * expected)
    bridge = np.minimum.outer(expected, expected) - np.outer(expected, expected)
    own = leeway.smooth * (np.outer(shift, shift) + np.outer(stretch, stretch)) + leeway.rough * bridge
    return np.asarray(np.clip(expected + own @ np.linalg.solve(own + noise / total**2, off), 0.0, 1.0))
