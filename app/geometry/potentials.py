"""Potentials of mirror descent, as far as an update needs them: their links on magnitudes, and their lines.

A potential ``Psi`` is ``mu``-strongly convex in its norm: ``D(x; h) >= mu/2 ||x - h||^2``. Its link is ``grad Psi``,
the inverse ``grad Psi*``. JT12 section 3.2 and definitions 1, 2; strong convexity of the squared norms: Kakade,
Shalev-Shwartz, Tewari 2009 (``mu = 2`` for ``||z||_p^2/(p-1)`` and its group and Schatten forms, 1 < p <= 2); of the
entropy: Pinsker. The squared norm of an array is that of its magnitudes, whose directions a link keeps.

A *line* is the path ``rate -> <f, grad Psi*(theta + rate f)>`` that an update along a query moves on. It never
falls, as its slope ``f' (grad^2 Psi*) f`` is that of a convex function; each line function returns value and
slope.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeAlias

import numpy as np

from app.geometry.norms import PIECE, FloatArray, conjugate, pieces, vector_norm

#: rate -> (value, slope)
Line: TypeAlias = Callable[[float], tuple[float, float]]


# ---------------------------------------------------------------------- the link on magnitudes


def _scaled(magnitudes: FloatArray) -> tuple[float, FloatArray]:
    largest = float(magnitudes.max()) if magnitudes.size else 0.0
    return largest, magnitudes / largest if largest > 0 else magnitudes


def link_magnitudes(magnitudes: FloatArray, p: float, copies: int = 1) -> FloatArray:
    """``2/(p-1) ||m||_p^(2-p) m^(p-1)``."""
    largest, m = _scaled(magnitudes)
    if largest == 0.0:
        return np.zeros_like(m)
    result: FloatArray = (2 / (p - 1) * largest * vector_norm(m, p, copies) ** (2 - p)) * m ** (p - 1)
    return result


def inverse_magnitudes(magnitudes: FloatArray, p: float, copies: int = 1) -> FloatArray:
    """``(p-1)/2 ||m||_q^(2-q) m^(q-1)``."""
    q = conjugate(p)
    largest, m = _scaled(magnitudes)
    if largest == 0.0:
        return np.zeros_like(m)
    result: FloatArray = ((p - 1) / 2 * largest * vector_norm(m, q, copies) ** (2 - q)) * m ** (q - 1)
    return result


# ---------------------------------------------------------------------- lines


def tilted_line(weights: FloatArray, masses: FloatArray, weightless: float) -> Line:
    """The line of the entropy: masses tilted by ``exp(rate * weight)`` and normalised to their sum with ``weightless``.

    ``masses[j]`` stands at ``weights[j]``; ``weightless`` is mass of weight zero. Exponents are counted from that of
    the heaviest factor, so that nothing overflows and not all vanish. The slope is the variance of the weight.
    """
    total = float(masses.sum()) + weightless
    low, high = reach(weights, masses)
    if weightless > 0:
        low, high = min(low, 0.0), max(high, 0.0)

    def at(rate: float) -> tuple[float, float]:
        top = rate * (high if rate > 0 else low)
        # Mass, mean and sum of squares around it, of the parts so far: joined like this they lose nothing.
        mass, mean, spread = weightless * math.exp(-top) if weightless > 0 else 0.0, 0.0, 0.0
        for w, m in pieces(weights, masses):
            tilted = rate * w
            tilted -= top
            np.minimum(tilted, 0.0, out=tilted)  # what has no mass may weigh more
            np.exp(tilted, out=tilted)
            tilted *= m
            part = float(tilted.sum())
            if part > 0.0:
                centre = float(w @ tilted) / part
                off = w - centre
                off *= off
                joined, apart = mass + part, centre - mean
                spread += float(tilted @ off) + apart**2 * mass * (part / joined)
                mean += apart * (part / joined)
                mass = joined
        return total * mean, total * spread / mass

    return at


def reach(weights: FloatArray, masses: FloatArray) -> tuple[float, float]:
    """The smallest and the largest weight that has mass; (inf, -inf) where there is none."""
    low, high = math.inf, -math.inf
    for w, m in pieces(weights, masses):
        low = min(low, float(w.min(initial=math.inf, where=m > 0)))
        high = max(high, float(w.max(initial=-math.inf, where=m > 0)))
    return low, high


def power_line(theta: FloatArray, f: FloatArray | float, others: float, p: float, copies: int = 1) -> Line:
    """The line of the l_p potential, from the coordinates that f touches.

    Args:
        theta: the touched part of theta.
        f: weights that broadcast over it.
        others: ``sum |theta_i|^q`` over all other coordinates (each once).
        p: exponent, 1 < p <= 2.
        copies: how often each touched coordinate stands in ``theta``.
    """
    q = conjugate(p)
    outside = others ** (1 / q)

    def at(rate: float) -> tuple[float, float]:
        largest = max(outside, largest_moved(theta, f, rate))
        if largest == 0.0:
            return 0.0, 0.0
        pairing, curved, total = 0.0, 0.0, 0.0
        # Everything is divided by the largest magnitude before powers are taken.
        for t, w in pieces(theta, f):
            x = (t + rate * w) / largest
            size = np.abs(x)
            flat = size ** (q - 2) if q > 2 else np.ones_like(size)
            fw = w * flat
            pairing += float(fw @ x)
            curved += float(fw @ w)
            flat *= size
            total += float(flat @ size)
        pairing, curved, total = pairing / copies, curved / copies, total / copies + (outside / largest) ** q
        scale = (p - 1) / 2 * total ** ((2 - q) / q)
        return largest * scale * pairing, scale * ((q - 1) * curved + (2 - q) * pairing**2 / total)

    return at


def largest_moved(theta: FloatArray, f: FloatArray | float, rate: float) -> float:
    """The largest magnitude of ``theta + rate f``."""
    return max((float(np.abs(t + rate * w).max(initial=0.0)) for t, w in pieces(theta, f)), default=0.0)


def group_line(squares: FloatArray, products: FloatArray, lengths: FloatArray, others: float, p: float) -> Line:
    """The line of the group potential, from the rows that f touches.

    Args:
        squares: ``||theta_i||^2`` of the touched rows.
        products: ``<f_i, theta_i>``.
        lengths: ``||f_i||^2``.
        others: ``sum ||theta_i||^q`` over all other rows.
        p: exponent, 1 < p <= 2.
    """
    q = conjugate(p)
    outside = others ** (1 / q)

    def at(rate: float) -> tuple[float, float]:
        along = products + rate * lengths
        norms = np.sqrt(np.maximum(squares + rate * (products + along), 0.0))
        largest = max(float(norms.max()), outside)
        if largest == 0.0:
            return 0.0, 0.0
        norms /= largest
        along = along / largest
        flat = norms ** (q - 2) if q > 2 else np.ones_like(norms)
        pairing = float(flat @ along)
        # <f_i, theta_i> is at most ||f_i|| ||theta_i||: where the row vanishes, so does the ratio's weight.
        slant = np.divide(along, norms, out=np.zeros_like(along), where=norms > 0)
        curved = float(flat @ lengths) + (q - 2) * float(flat @ slant**2)
        total = float(flat @ norms**2) + (outside / largest) ** q
        scale = (p - 1) / 2 * total ** ((2 - q) / q)
        return largest * scale * pairing, scale * (curved + (2 - q) * pairing**2 / total)

    return at


class SpectralLine:
    """The line of the Schatten potential, by one singular value decomposition a point; the latest one is kept.

    The slope is the second derivative of a function of singular values (Lewis, Sendov 2001): with
    ``M = U' f V``, its diagonal meets the Hessian of the l_q potential, its symmetric and antisymmetric parts the
    divided differences ``(g_i - g_j)/(s_i - s_j)`` and ``(g_i + g_j)/(s_i + s_j)``, and what f has outside of U and V
    the ratio ``g_i/s_i``.
    """

    def __init__(self, theta: FloatArray, f: FloatArray, p: float) -> None:
        self._theta, self._f, self._p = theta, f, p
        self._latest: tuple[float, tuple[FloatArray, FloatArray, FloatArray]] | None = None

    def decomposed(self, rate: float) -> tuple[FloatArray, FloatArray, FloatArray]:
        """U, the singular values and V' of ``theta + rate f``."""
        if self._latest is None or self._latest[0] != rate:
            self._latest = None  # before another is made
            self._latest = rate, np.linalg.svd(self._theta + rate * self._f, full_matrices=False)
        return self._latest[1]

    def inverse(self, rate: float) -> FloatArray:
        """grad Psi* at ``theta + rate f``."""
        left, s, right = self.decomposed(rate)
        result: FloatArray = (left * inverse_magnitudes(s, self._p)) @ right
        return result

    def __call__(self, rate: float) -> tuple[float, float]:
        """Value and slope."""
        q, f = conjugate(self._p), self._f
        left, s, right = self.decomposed(rate)
        largest = float(s[0])
        if largest == 0.0:
            return 0.0, 0.0
        s = s / largest
        # Of the two bases that of the smaller side is whole: f has nothing outside of it.
        if len(f) <= f.shape[1]:
            across = left.T @ f
            m, lengths = across @ right.T, np.einsum("ij,ij->i", across, across)
            outside = lengths - np.einsum("ij,ij->i", m, m)
        else:
            down = f @ right.T
            m, lengths = left.T @ down, np.einsum("ij,ij->j", down, down)
            outside = lengths - np.einsum("ij,ij->j", m, m)
        g = s ** (q - 1)
        flat = s ** (q - 2) if q > 2 else np.ones_like(s)
        total = float((s**q).sum())
        scale = (self._p - 1) / 2 * total ** ((2 - q) / q)
        diagonal = np.diagonal(m)
        pairing = float(g @ diagonal)
        curved = (q - 1) * float(flat @ diagonal**2) + (2 - q) * pairing**2 / total
        curved += _apart(s, m, q) + float(flat @ np.maximum(outside, 0.0))
        return largest * scale * pairing, scale * curved


def _apart(s: FloatArray, m: FloatArray, q: float) -> float:
    """The terms that pairs of singular values add to the slope: a band of rows at a time, as it is a matter of many
    arrays.
    """
    g, total = s ** (q - 1), 0.0
    band = max(1, PIECE // len(s))
    for start in range(0, len(s), band):
        rows = slice(start, start + band)
        mine, other = s[rows, None], g[rows, None]
        difference, middle = mine - s, (mine + s) / 2
        # Of singular values that are nearly equal the divided difference is the derivative between them.
        near = np.abs(difference) <= 1e-4 * middle
        level = middle ** (q - 2) if q > 2 else np.ones_like(middle)
        apart = np.divide(other - g, difference, out=(q - 1) * level, where=~near)
        together = np.divide((other + g) / 2, middle, out=level, where=middle > 0)
        even, odd = (m[rows] + m.T[rows]) / 2, (m[rows] - m.T[rows]) / 2
        own = np.arange(len(even))
        even[own, start + own] = 0.0
        total += float(np.vdot(even**2, apart)) + float(np.vdot(odd**2, together))
    return total
