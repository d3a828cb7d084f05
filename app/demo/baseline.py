"""The simplest alternative, for comparison: the same privacy by independent Gaussian noise on every answer.

Each answer to a query of sensitivity 1 gets Gaussian noise of standard deviation sigma. Under adaptive
composition k such answers are exactly as private as one answer of sensitivity sqrt(k) (Dong, Roth, Su 2019),
so the analytic calibration of one Gaussian (Balle, Wang 2018, theorem 8) gives the least sigma there is: the
comparison favours the Gaussian as much as it may.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.integrate import quad
from scipy.optimize import brentq
from scipy.special import log_ndtr, ndtr, ndtri


def gaussian_sigma(epsilon: float, delta: float, queries: int) -> float:
    """The least standard deviation that keeps ``queries`` answers of sensitivity 1 within (epsilon, delta).

    Solves ``Phi(m/2 - epsilon/m) - e^epsilon Phi(-m/2 - epsilon/m) = delta`` for ``m = sqrt(queries)/sigma``.
    """

    def excess(log_m: float) -> float:
        m = math.exp(log_m)
        spent = ndtr(m / 2 - epsilon / m) - math.exp(epsilon + float(log_ndtr(-m / 2 - epsilon / m)))
        return float(spent) - delta

    low = high = 0.0
    while excess(low) > 0:
        low -= 1
    while excess(high) < 0:
        high += 1
    m = math.exp(float(brentq(excess, low, high, xtol=1e-12)))
    return math.sqrt(queries) / m


def gaussian_sigma_charged(order: float, spent: float, queries: int) -> float:
    """The standard deviation at which ``queries`` answers of sensitivity 1 cost what a session spent.

    ``order`` is the ledger's Renyi order and ``spent`` the session's divergence at it; a Gaussian answer costs
    ``order / (2 sigma^2)`` (Mironov 2017, proposition 7), additively.
    """
    return math.sqrt(order * queries / (2 * spent))


def expected_largest(sigma: float, queries: int) -> float:
    """Mean of the largest of ``queries`` absolute independent Gaussians of standard deviation ``sigma``.

    ``sigma * integral over t > 0 of 1 - (2 Phi(t) - 1)^k``.
    """

    def tail(t: float) -> float:
        return -math.expm1(queries * math.log1p(-2 * float(ndtr(-t)))) if t > 0 else 1.0

    # Beyond 40 standard deviations nothing is left, and around sqrt(2 ln k) the integrand falls steeply.
    knee = math.sqrt(2 * math.log(queries + 1))
    value, _ = quad(tail, 0.0, 40.0, points=[knee], limit=200)
    return sigma * float(value)


def queries_to_overtake(
    bound: float, queries: int, beta: float, epsilon: float, delta: float, limit: int = 10**12
) -> int | None:
    """From how many queries on a session's bound is below the largest error to expect of Gaussian answers.

    The bound, ``bound`` at ``queries`` queries, grows as ``ln(k/beta)`` with their number k while the number
    of updates stays the same; the Gaussian's error grows as ``sqrt(k ln k)``. None where that is beyond
    ``limit``.
    """
    one = gaussian_sigma(epsilon, delta, 1)
    candidates = np.unique(np.logspace(0, math.log10(limit), 2000).astype(np.int64))
    for k in candidates.tolist():
        curator = bound * math.log(k / beta) / math.log(queries / beta)
        if expected_largest(one * math.sqrt(k), k) > curator:
            return int(k)
    return None


def least_largest(sigma: float, queries: int, beta: float) -> float:
    """What the largest of ``queries`` absolute independent Gaussians of standard deviation ``sigma`` exceeds with
    probability ``beta``: the least that can be promised of all of them together.

    Solves ``(1 - 2 Phi(-t / sigma))^queries = 1 - beta``.
    """
    tail = -math.expm1(math.log1p(-beta) / queries) / 2
    return -sigma * float(ndtri(tail))
