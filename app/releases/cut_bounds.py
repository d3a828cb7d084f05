"""The bound that the errors of all cuts keep at once, where every cell of a graph or a matrix was measured with its own
noise.

The error of a cut of m cells is the sum of m independent errors Z. With ``K(t)`` at least ``ln E e^(tZ)`` and
``ln E e^(-tZ)``, Chernoff's bound is ``P[|sum| >= e] <= 2 exp(m K(t) - t e)`` for every t > 0. There are ``2^sides``
pairs of sets of rows and columns, ``sides`` being the number of rows and columns together, so with probability 1 - beta
no cut of m cells errs by more than

    min over t of (m K(t) + sides ln 2 + ln(2/beta)) / t,

for all m at once. Whichever t are looked at, each gives a bound. A rank-one query with weights in [0, 1], and an
undirected one, is linear in each of its weights, so the largest error of all is that of a cut.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import ROUND_CEILING, Context

import numpy as np

from app.measurements.noise import BitFlips, Noise
from app.measurements.strategies.edges import Edges
from app.spaces.tensor import FloatArray

#: Bounds are rounded up to so many digits, far beyond what float64 errs by here.
_UP = Context(prec=6, rounding=ROUND_CEILING)
_TRIED = 400
#: More than a cumulant can come out too small, where it is the difference of two numbers.
_ROUNDING = 2.0**-44


@dataclass(frozen=True)
class Term:
    """A noise and the factor that it is multiplied by in an estimate, positive."""

    noise: Noise | BitFlips
    factor: float = 1.0


def all_cuts_bound(edges: Edges, terms: Sequence[Term], beta: float, cells: int | None = None) -> float:
    """The largest error of a cut of so many cells, of all where none are said, at once for all cuts, in counts.

    Args:
        edges: the cells, each measured by itself.
        terms: the noises, independent, whose sum is the error of a cell.
        beta: the probability with which some cut may err by more.
        cells: of the cut.
    """
    many = edges.cells if cells is None else cells
    logarithm = sum(edges.shape) * math.log(2) + math.log(2 / beta)
    # Where the bound is the least for a Gaussian law of the same variance; for the others it is not far from there.
    variance = sum(term.factor**2 * term.noise.variance for term in terms)
    middle = math.sqrt(2 * logarithm / (many * variance))
    tried = middle * np.geomspace(1e-3, 1e3, _TRIED)
    limit = min((_limit(term) for term in terms), default=math.inf)
    if math.isfinite(limit):
        tried = np.concatenate([tried[tried < limit], limit * np.linspace(0.01, 0.99, _TRIED)])
    cumulants = sum((_cumulant(term.noise, term.factor * tried) for term in terms), np.zeros(len(tried)))
    least = float(np.min((many * (cumulants + _ROUNDING) + logarithm) / tried))
    return rounded_up(least * (1 + 1e-9))


def rounded_up(value: float) -> float:
    """The value rounded up to six digits: the same on machines whose last digits differ."""
    return float(_UP.create_decimal_from_float(value))


def _limit(term: Term) -> float:
    """Below which t the cumulant is finite."""
    if isinstance(term.noise, Noise) and term.noise.kind == "laplace":
        return 1 / (term.factor * float(term.noise.scale))
    return math.inf


def _cumulant(noise: Noise | BitFlips, t: FloatArray) -> FloatArray:
    """K(t), or a bound of it.

    * Of a bit that is turned over with probability p, with ``s = t/(1-2p)``: where the bit was 0 it is
      ``ln(1-p + p e^s) - p s``, and where it was 1 the same at -s, which is less. (The difference of both is zero at 0,
      and so is its slope, which grows with s, as p < 1/2.)
    * Of discrete Laplace noise of ratio r a grid unit ``E e^(tZ) = (1-r)^2 / ((1 - r e^u)(1 - r e^-u))`` with u the t
      of a unit, which is ``1 / (1 - (sinh(u/2) / sinh(1/(2b)))^2)`` with b the scale in units.
    * Of discrete Gaussian noise ``e^(-sigma^2 t^2/2) E e^(tZ)`` is a sum of values of the bell curve over the integers
      shifted, divided by that over the integers, which is the largest: so K(t) is at most ``sigma^2 t^2/2``.
    """
    if isinstance(noise, BitFlips):
        p = float(noise.probability)
        s = t / (1 - 2 * p)
        bits: FloatArray = np.logaddexp(math.log1p(-p), math.log(p) + s) - p * s
        return bits
    if noise.kind == "gaussian":
        return (float(noise.scale) * t) ** 2 / 2
    unit = math.ldexp(1.0, -noise.bits)
    ratio = np.sinh(t * unit / 2) / math.sinh(unit / (2 * float(noise.scale)))
    cumulant: FloatArray = -np.log1p(-(ratio**2))
    return cumulant
