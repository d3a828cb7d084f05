"""How the records of a group are spread over numbers, from noisy numbers of records below some of them.

Where noise is great beside a group, what was counted says little of where its quantiles are, and how all records are
spread says more. With ``F`` the part of the records that is expected below a place, the true part is taken to differ by

- a shift and a stretch of the whole, ``F (1 - F)`` and ``F (1 - F) (1 - 2F)`` times normal factors,
- and a Brownian bridge, which is rough: two places have the covariance ``min(F_i, F_j) - F_i F_j``.

Noise is taken to be normal, and what is shown is the posterior mean: with ``K`` the covariance of the difference, ``S``
that of noise and ``d`` the difference that was counted, ``F + K (K + S)^-1 d`` (Rasmussen and Williams, Gaussian
Processes for Machine Learning, equation 2.25). Of the number of all records nothing is expected: ``d`` are counts less
``F`` times the counted total, and ``S`` is the covariance of these.

How all records are spread was counted, too, with about as much noise in all groups together: what is expected of a
group is as rough as that makes it, besides.

Intervals do not come from here: they hold whatever the spread.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from app.spaces.tensor import FloatArray, IntArray


@dataclass(frozen=True)
class Leeway:
    """How far parts of records below places may be from what is expected.

    Attributes:
        smooth: the variance of the factor of a shift, and a quarter of that of a stretch.
        rough: what multiplies the covariance of the bridge.
        doubt: how many times that of what noise hides of all records is added.
        even: the part of the records that is expected as many in every range. Ranges end where something may be, so
            that none is expected to have next to nobody.
    """

    smooth: float
    rough: float
    doubt: float
    even: float


#: All records, of which only bounds and declared cells say something: half of them may as well be nearly all.
ANYHOW = Leeway(4.0, 0.3, 0.0, 0.3)
#: A group beside all records: its median may well be a quartile of all, but hardly are some of its numbers many that
#: are few of all.
AS_ALL = Leeway(2.0, 0.006, 5.0, 0.1)


@dataclass(frozen=True, eq=False)
class Expected:
    """How the records of a group are expected to be spread over numbers.

    Attributes:
        base: about how many there are at each number, as parts of any sum; positive.
        leeway: how far they may be from that.
        records: about how many there are of all, in what is counted.
    """

    base: FloatArray
    leeway: Leeway
    records: float


def likely(expected: Expected, ends: IntArray, below: FloatArray, covariance: FloatArray) -> FloatArray:
    """The parts of the records below the ends of ranges.

    Args:
        expected: of the group.
        ends: the places behind the last number of each range, of two ranges or more.
        below: the number of records that was counted below each end; the last is that of all.
        covariance: of these; that of the last may be zero.

    Returns:
        Parts between 0 and 1, one for each end but the last. They may fall where what was counted does.
    """
    leeway = expected.leeway
    masses = np.add.reduceat(expected.base, np.concatenate([[0], ends[:-1]]))
    parts = np.cumsum((1 - leeway.even) * masses / masses.sum() + leeway.even / len(masses))[:-1]
    total = max(float(below[-1]), math.sqrt(max(float(covariance[-1, -1]), 0.0)), 1.0)
    off = (below[:-1] - parts * below[-1]) / total
    shared = np.outer(parts, covariance[:-1, -1])
    noise = covariance[:-1, :-1] - shared - shared.T + covariance[-1, -1] * np.outer(parts, parts)
    noise = noise / total**2
    shift = parts * (1 - parts)
    stretch = 2 * shift * (1 - 2 * parts)
    hidden = float(np.median(np.diag(noise) / shift)) * min(total / max(expected.records, 1.0), 1.0)
    bridge = np.minimum.outer(parts, parts) - np.outer(parts, parts)
    own = leeway.smooth * (np.outer(shift, shift) + np.outer(stretch, stretch))
    own += (leeway.rough + leeway.doubt * hidden) * bridge
    return np.asarray(np.clip(parts + own @ np.linalg.solve(own + noise, off), 0.0, 1.0))
