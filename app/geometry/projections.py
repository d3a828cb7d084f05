"""Bregman projections, by one-dimensional monotone root searches: along a line to a half-space, and on norm balls."""

from __future__ import annotations

import math

import numpy as np
from scipy.optimize import brentq

from app.geometry.norms import FloatArray, pieces, vector_norm
from app.geometry.potentials import Line

#: Relative accuracy of root searches: a few units in the last place above what sums of float64 can resolve.
ACCURACY = 2.0**-47
_MOST_STEPS = 200


def solve(line: Line, target: float, guess: float, *, scale: float = 0.0, most: float = math.inf) -> float:
    """The rate of the sign of ``guess`` at which a line that never falls reaches ``target``.

    Newton's method inside a bracket that begins at 0 and is widened as needed; a step that leaves the bracket or
    gains too little is replaced by the bracket's geometric middle (rates may be of any order of magnitude).

    Args:
        line: rate -> (value, slope).
        target: the value to reach; the caller makes sure that the line does on this side.
        guess: first rate, not 0.
        scale: size of the numbers behind the values; the search ends within ``ACCURACY`` of it.
        most: the largest rate to try.

    Returns:
        The rate; where the line stays below the target, the largest rate tried.
    """
    side = math.copysign(1.0, guess)
    tolerance = ACCURACY * max(abs(target), scale)
    low, high, rate = 0.0, math.inf, abs(guess)
    before = math.inf
    for _ in range(_MOST_STEPS):
        value, slope = line(side * rate)
        short = side * (target - value)
        if abs(short) <= tolerance:
            break
        low, high = (rate, high) if short > 0 else (low, rate)
        step = short / slope if slope > 0 else math.inf
        following = rate + step
        if not low < following < high or abs(short) > before / 2 or following > 16 * rate:
            following = _middle(low, high, rate)
        following = min(following, most)
        before = abs(short)
        if following == rate or (high < math.inf and high - low <= 2.0**-52 * high):
            break
        rate = following
    return side * rate


def _middle(low: float, high: float, rate: float) -> float:
    if high == math.inf:
        return 4 * rate
    if low == 0.0:
        return high / 16
    return math.sqrt(low) * math.sqrt(high) if high > 2 * low else (low + high) / 2


def first_rate(mu: float, zeta: float, gap: float) -> float:
    """A rate that does not overshoot: Psi* is 1/mu-smooth, so a rate moves the answer by at most ``rate zeta^2/mu``."""
    return mu * gap / zeta**2


def magnitudes_onto_ball(m: FloatArray, p: float, ball_p: float, radius: float, copies: int = 1) -> FloatArray:
    """The same as :func:`confine`, in a new array; ``m`` itself where it lies in the ball.

    An array is projected by giving it these magnitudes in its old directions (signs, rows' directions, singular
    vectors): for given magnitudes those make ``<link(z), y>`` largest, and nothing else in the problem depends on them.
    """
    confined = m.copy()
    return confined if confine(confined, p, ball_p, radius, copies) else m


def confine(m: FloatArray, p: float, ball_p: float, radius: float, copies: int = 1) -> bool:
    """``argmin ||y||_p^2/(p-1) - <link(m), y>`` subject to ``||y||_ball_p <= radius``, ``y >= 0``; m >= 0.

    With ball_p = p the solution is ``m`` scaled to the ball. Else it satisfies, for a multiplier nu >= 0,

        2/(p-1) ||y||_p^(2-p) y_i^(p-1) + nu y_i^(ball_p-1) = theta_i,      theta = link(m).

    Written ``y = t w`` with the largest w_i equal to 1, and theta divided by its largest, that is

        mu w_i^(p-1) + (1 - mu) w_i^(ball_p-1) = theta_i,      0 <= mu <= 1:

    one monotone scalar equation a coordinate, and one number mu, found by an outer root search on
    ``||t w||_ball_p = radius``. (t follows from mu, which falls as nu rises, continuously: so the norm rises in mu as
    it falls in nu. That w is of order 1 keeps it within float64 for every p, however far outside m lies.)

    Returns:
        Whether m lay outside. Then the solution stands in its place.
    """
    size = vector_norm(m, ball_p, copies)
    if size <= radius:
        return False
    if ball_p == p or radius <= 0:
        m *= max(radius, 0.0) / size
        return True
    # The problem is homogeneous: with m and the radius divided by the largest, theta is m^(p-1) up to a factor, and
    # t relative to its value at mu = 1, where y must be m.
    largest = float(m.max())
    edge = radius / largest
    held = [m]  # the search leaves its function to the garbage collector: m shall not wait with it

    def lengths(mu: float) -> tuple[float, float]:
        """The two norms of w, by those of its parts."""
        both = []
        for (part,) in pieces(held[0]):
            w = _coordinates((part / largest) ** (p - 1), mu, p, ball_p)
            both.append((vector_norm(w, p), vector_norm(w, ball_p)))
        inner, outer = np.array(both).T
        return vector_norm(inner, p, copies), vector_norm(outer, ball_p, copies)

    start = vector_norm(m, p, copies) / largest

    def excess(mu: float) -> float:
        length, found = lengths(mu)
        return float(mu * found * (length / start) ** (p - 2) - edge)

    low, high = 0.0625, 1.0
    if excess(high) <= 0:  # outside by a rounding
        return False
    while excess(low) > 0:
        low, high = low / 16, low
    mu = float(brentq(excess, low, high, xtol=2.0**-1000, rtol=2.0**-48))
    # Scaling w to the ball takes the search's last rounding out.
    scale = radius / lengths(mu)[1]
    held.clear()
    for (part,) in pieces(m, written=1):
        part[...] = _coordinates((part / largest) ** (p - 1), mu, p, ball_p)
        part *= scale
    return True


def _coordinates(theta: FloatArray, mu: float, p: float, ball_p: float) -> FloatArray:
    """``v >= 0`` with ``mu v^(p-1) + (1 - mu) v^(ball_p-1) = theta``, coordinate by coordinate; mu is not zero.

    Divided by mu it is ``v^(p-1) + kappa v^(ball_p-1) = theta``.
    """
    if mu == 1.0 or ball_p == 1:
        return (np.maximum(theta - 1 + mu, 0.0) / mu) ** (1 / (p - 1))
    theta, kappa = theta / mu, (1 - mu) / mu
    r = (ball_p - 1) / (p - 1)
    if r >= 1:
        # In w = v^(p-1): w + kappa w^r = theta.
        return _convex_root(theta, kappa ** (-1 / r), r) ** (1 / (p - 1))
    # In u = kappa v^(ball_p-1): u + (u/kappa)^(1/r) = theta.
    return (_convex_root(theta, kappa, 1 / r) / kappa) ** (1 / (ball_p - 1))


def _convex_root(theta: FloatArray, base: float, r: float) -> FloatArray:
    """``w >= 0`` with ``w + (w/base)^r = theta``, r >= 1, coordinate by coordinate.

    The left side is convex and rises, so Newton's method falls monotonically to the root from
    ``min(theta, base theta^(1/r))``, where the left side is not below theta.
    """
    w = np.minimum(theta, base * theta ** (1 / r))
    for _ in range(_MOST_STEPS):
        power = (w / base) ** (r - 1) / base
        step = (w * (1 + power) - theta) / (1 + r * power)
        w = np.maximum(w - step, 0.0)
        if bool(np.all(step <= 2.0**-50 * w)):
            break
    return w
