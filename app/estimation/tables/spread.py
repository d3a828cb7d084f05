"""How the records of a group are spread over numbers, from noisy numbers of records below some of them.

Where noise is great beside a group, what was counted says little of where its quantiles are, and how all records are
spread says more. The part of the records below each place is taken to differ from what is expected as a Brownian bridge
does: with ``F`` the expected part, two places have the covariance ``a (min(F_i, F_j) - F_i F_j)``. Noise is taken to be
normal; what is shown is the posterior mean, averaged over widths ``a`` by how likely each makes what was counted.
Of the number of all records nothing is expected: what is looked at are counts less ``F`` times the counted total.

A bridge is a Markov chain along the places. So the covariance has a Cholesky factor in closed form, and one symmetric
eigenvalue problem serves all widths (Rasmussen and Williams, Gaussian Processes for Machine Learning, sections 2.2 and
5.4.1, are the standard account of such posteriors and of widths that data tell).

Intervals do not come from here: they hold whatever the spread.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from app.spaces.tensor import FloatArray


@dataclass(frozen=True, eq=False)
class Widths:
    """How far parts of records below places may be from what is expected.

    Attributes:
        variances: one or several, of a Brownian bridge before it is tied.
        logarithms: of how likely each is.
        even: the part of the records that are expected as many in every range. Ranges end where something may be, so
            that none is expected to have next to nobody.
    """

    variances: FloatArray
    logarithms: FloatArray
    even: float


def _about(middle: float, decades: float, even: float) -> Widths:
    """Widths of which the logarithm is normal: to base ten with this deviation."""
    exponents = np.linspace(-4, 4, 33)
    return Widths(middle * 10.0**exponents, -np.square(exponents / decades) / 2, even)


#: All records, of which little is expected: of the half that should lie below a place a part of .35 of all may not.
ANYHOW = Widths(np.array([0.5]), np.zeros(1), 0.3)
#: A group, of which nobody knows how far it is from all records, so that what was counted has to tell: by such a width
#: a part of .16 of the group.
AS_ALL = _about(0.1, 0.7, 0.1)


def likely(masses: FloatArray, below: FloatArray, covariance: FloatArray, widths: Widths) -> FloatArray:
    """The parts of the records below the ends of ranges.

    Args:
        masses: about how many records are expected in each range, of two ranges or more, as parts of any sum.
        below: the number of records that was counted below the end of each range; the last is that of all.
        covariance: of these; that of the last may be zero.
        widths: how far parts below the ends may be from what is expected.

    Returns:
        Parts between 0 and 1, one for each end but the last. They may fall where what was counted does.
    """
    masses = (1 - widths.even) * masses / masses.sum() + widths.even / len(masses)
    expected, after = np.cumsum(masses)[:-1], np.cumsum(masses[::-1])[::-1]
    total = max(float(below[-1]), math.sqrt(max(float(covariance[-1, -1]), 0.0)), 1.0)
    off = (below[:-1] - expected * below[-1]) / total
    shared = np.outer(expected, covariance[:-1, -1])
    noise = covariance[:-1, :-1] - shared - shared.T + covariance[-1, -1] * np.outer(expected, expected)
    # An end, given the one before: by what part it is foretold, and how far it may be off that.
    left = after[1:] / after[:-1]
    steps = np.sqrt(masses[:-1] * left)
    turned = _told(_told(noise / total**2, left, steps).T, left, steps)
    noises, directions = np.linalg.eigh((turned + turned.T) / 2)
    noises = np.maximum(noises, np.finfo(np.float64).tiny)
    seen = directions.T @ _told(off, left, steps)
    whole = widths.variances[:, None] + noises
    logarithms = widths.logarithms - (np.log(whole) + np.square(seen) / whole).sum(axis=1) / 2
    weights = np.exp(logarithms - logarithms.max())
    kept = weights @ (widths.variances[:, None] / whole) / weights.sum()
    moved = after[1:] * np.cumsum(steps * (directions @ (kept * seen)) / after[1:])
    return np.asarray(np.clip(expected + moved, 0.0, 1.0))


def _told(values: FloatArray, left: FloatArray, steps: FloatArray) -> FloatArray:
    """Along the first axis, what each end adds to what the one before foretells, in its own deviations."""
    shape = (-1,) + (1,) * (values.ndim - 1)
    foretold = np.concatenate([np.zeros_like(values[:1]), values[:-1]]) * left.reshape(shape)
    return np.asarray((values - foretold) / steps.reshape(shape))
