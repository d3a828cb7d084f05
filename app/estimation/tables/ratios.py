"""Intervals of ratios of noisy numbers: of means (Fieller's), and of variances.

What is known of a group are its number of records N, the sum S of a number u that they have, and the sum Q of u^2, with
the covariances of their noise. A mean is S/N and a variance ``Q/N - (S/N)^2``; neither is linear, and where noise is no
small part of N errors of the first order do not tell how far they may be off. Here an interval holds every value that
belongs to some N, S and Q not too far from what is known, however small N is.

*Variances.* Not too far is within so many standard deviations in every direction: an ellipsoid. All N, S and Q of one
variance are a surface, straight along its rays through the origin, and the interval holds the true variance where the
ellipsoid meets the true one's surface. Were that flat its distance, in standard deviations, would be that of one normal
number from zero. It bends across its rays alone, so that the distance is never more than that of two, from a ray: an
interval of ``sqrt(chi2)`` with two degrees of freedom always holds, and is a quarter wider than one of the normal
quantile at 95%. What is taken is in between, by how much the surface bends within the noise.

``python -m benchmarks.research.statistics --intervals`` compares these.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache

import numpy as np
from scipy.optimize import brentq
from scipy.special import log_ndtr

from app.estimation.tables.joint import Joint
from app.spaces.tensor import FloatArray

#: Means that are tried for the best of all: evenly, then more finely around the best, twice.
_SCANS = (33, 17, 17)
#: The curvature within the noise for which half of what no curvature needs more than is added.
_CURVED = 5.5


def fieller(
    count: FloatArray,
    spread: FloatArray,
    sums: FloatArray,
    variances: FloatArray,
    covariances: FloatArray,
    quantile: float | FloatArray,
) -> tuple[FloatArray, FloatArray]:
    """Fieller's interval of the ratio of sums A to counts N: every r for which A - rN is within its noise of zero,
    between the roots of ``(A - rN)^2 = z^2 (v_A - 2 r c + r^2 v_N)``; infinite where these are no bounds."""
    square = np.square(quantile)
    lead = np.square(count) - square * spread
    half = sums * count - square * covariances
    # half^2 - lead (A^2 - z^2 v_A), of what is left of it.
    left = np.square(count) * variances - 2 * count * sums * covariances + np.square(sums) * spread
    root = np.sqrt(np.maximum(square * (left - square * (spread * variances - np.square(covariances))), 0.0))
    bounded = lead > 0
    lead = np.where(bounded, lead, 1.0)
    return np.where(bounded, (half - root) / lead, -np.inf), np.where(bounded, (half + root) / lead, np.inf)


def about(known: Joint, centre: FloatArray) -> Joint:
    """Counts, sums and sums of squares about a number for each group."""
    onto = np.zeros((len(centre), 3, 3))
    onto[:, 0, 0] = onto[:, 1, 1] = onto[:, 2, 2] = 1
    onto[:, 1, 0] = -centre
    onto[:, 2, 0], onto[:, 2, 1] = np.square(centre), -2 * centre
    return Joint(np.einsum("gij,gj->gi", onto, known.values), onto @ known.covariances @ onto.mT)


def fieller_mean(known: Joint, reach: float | FloatArray) -> tuple[FloatArray, FloatArray]:
    """Fieller's interval of S/N."""
    covariances = known.covariances
    return fieller(
        known.values[:, 0],
        covariances[:, 0, 0],
        known.values[:, 1],
        covariances[:, 1, 1],
        covariances[:, 0, 1],
        reach,
    )


def variances_of(
    known: Joint, quantile: float, least: float, most: float, *, curved: bool = True
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Variances of numbers between two, and the ends of their intervals: the least and the greatest of all variances
    that lie within some standard deviations of what is known.

    With A(m) the sum of squares about m a variance is the least A(m)/N, whatever m. Of a single m the least and the
    greatest A(m)/N in an ellipsoid are Fieller's. So the least of the former over all m is the least variance; and the
    least of the latter is the greatest, as A(m)/N is quasi-linear in what is known and convex in m (Sion's minimax
    theorem).

    Args:
        known: N, S and Q.
        quantile: how many standard deviations an interval of a normal number has to either side.
        least: no number is smaller.
        most: or larger.
        curved: whether more are taken where surfaces of one variance bend within the noise.
    """
    # About the mean as it is known, which leaves small numbers.
    mean = np.clip(known.values[:, 1] / known.values[:, 0], least, most)
    known = about(known, mean)
    (n, s, q), ((nn, ns, nq), (_, ss, sq), (_, _, qq)) = known.values.T, known.covariances.transpose(1, 2, 0)
    ends = fieller_mean(known, _most_curved(quantile))
    first, last = (np.clip(mean + end, least, most) - mean for end in ends)
    reach = _reach(known, quantile, first, last) if curved else np.full(len(n), quantile)

    def end(side: int) -> FloatArray:
        def tried(m: FloatArray) -> FloatArray:
            sums, both = q + m * (m * n - 2 * s), nq + m * (m * nn - 2 * ns)
            variances = qq + m * (-4 * sq + m * (4 * ss + 2 * nq + m * (m * nn - 4 * ns)))
            return fieller(n, nn, sums, np.maximum(variances, 0.0), both, reach)[side]

        found: FloatArray = _least(tried, first, last)[1]
        return found

    return q / n - np.square(s / n), end(0), end(1)


def _least(
    function: Callable[[FloatArray], FloatArray], first: FloatArray, last: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Where between two ends, for each group, a function is least, and how much it is there."""
    low, high = first, last
    at, best = first, np.full(len(first), np.inf)
    for points in _SCANS:
        tried = low + (high - low) * np.linspace(0, 1, points)[:, None]
        values = function(tried)
        place = values.argmin(axis=0)[None]
        found = np.take_along_axis(values, place, axis=0)[0]
        at = np.where(found < best, np.take_along_axis(tried, place, axis=0)[0], at)
        best = np.minimum(best, found)
        step = (high - low) / (points - 1)
        low, high = np.maximum(at - step, first), np.minimum(at + step, last)
    return at, best


def _reach(known: Joint, quantile: float, first: FloatArray, last: FloatArray) -> FloatArray:
    """How many standard deviations suffice for intervals of variances to hold as often as those of normal numbers of so
    many.

    A surface of one variance that is flat but for a curvature k across its rays is a parabola in the plane across them,
    in units of standard deviations. Its distance is that of one normal number where k is nothing, and at most that of
    half a chi with one and half a chi with two degrees of freedom where k has no bound: a ray that is met from one
    side. In between no more than ``k/(k + 5.5)`` of the way is needed, as was found by simulation (at .8, .95, .99 and
    .999). Of the means that may be, between ``first`` and ``last``, that of the largest k counts.
    """
    count, variances = known.values[:, 0], np.maximum(known.values[:, 2] / known.values[:, 0], 0.0)
    # The second derivatives of Q N - S^2 - v N^2, and its gradient about the mean, over N.
    bent = np.zeros((len(first), 3, 3))
    bent[:, 0, 0], bent[:, 1, 1], bent[:, 0, 2], bent[:, 2, 0] = -2 * variances, -2.0, 1.0, 1.0
    normal = np.stack([-variances, np.zeros(len(first)), np.ones(len(first))], axis=1)
    (nn, ns, nq), (_, ss, sq), (_, _, qq) = known.covariances.transpose(1, 2, 0)

    def across(m: FloatArray) -> FloatArray:
        """The variance of the sum of squares about a number, less that of the counts times the variance."""
        w = np.square(m) - variances
        found: FloatArray = qq - 4 * m * sq + 4 * m * m * ss + 2 * w * nq - 4 * m * w * ns + w * w * nn
        return np.maximum(found, 0.0)

    sharpest, least = _least(across, first, last)
    covariances = about(known, sharpest).covariances
    moved = np.einsum("gij,gj->gi", covariances, normal)
    trace = np.einsum("gij,gji->g", bent, covariances)
    with np.errstate(divide="ignore", invalid="ignore"):
        along = np.einsum("gi,gij,gj->g", moved, bent, moved) / least
        size = np.abs(trace - np.where(least > 0, along, 0.0)) / count
        part = np.where(size > 0, size / (size + _CURVED * np.sqrt(least)), 0.0)
    return np.asarray(quantile + (_most_curved(quantile) - quantile) * part)


@lru_cache(maxsize=64)
def _most_curved(quantile: float) -> float:
    """That of half a chi with one and half a chi with two degrees of freedom, for the confidence of a normal one."""
    missed = float(log_ndtr(-quantile))

    def more(x: float) -> float:
        return float(np.logaddexp(math.log(2) + log_ndtr(-x), -x * x / 2)) - 2 * math.log(2) - missed

    return float(brentq(more, quantile, quantile + 2))
