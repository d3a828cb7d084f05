"""How far errors of sums of bits reach that were released by randomised response.

The error of a bit that was turned over is 1 - p where it was 0 and p - 1 where it was 1, that of any other -p or p:
told in steps of one turned bit. Of m bits of which k are 1 the error is ``Bin(m-k, p) - Bin(k, p) - (m - 2k) p``. Which
k is the worst depends on everything: of each the integers that the difference can be lie elsewhere about its mean. So
an interval has to hold for all of them. Beside that there may be noise that is taken for normal.

* Where few bits are turned all k are looked at, those of many in blocks. With more ones the difference falls, in law.
  So for all k from k1 to k2 an interval holds ``P_k1[at most its end] - P_k2[below its start]``, if it reaches as far
  as the means of all of them ask for.
* Where many are turned the law is that of a smooth one, rounded to whole steps. Half a step more than its quantile
  holds wherever the steps lie. Noise beside it hides steps: less is added then. The smooth law is skewed most where all
  bits are alike, and depends on k by little.
* Where weights differ nothing is known of steps. Cumulants are at most those of as many equal weights, of the largest,
  as have the same variance. Of few such weights there are two bounds, of which the lesser serves: that of Bennett
  (1962, equation 8a), and how many bits can be turned at most but with a probability.

The first and the last are proved. The second is what tests hold against laws that are written out.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache

import numpy as np
from scipy.special import bdtr, ndtr

from app.estimation.tails import normal_quantile
from app.measurements.noise import BitFlips
from app.spaces.tensor import Array, FloatArray, IntArray

#: Up to this variance, in steps, every number of ones is looked at; from the second on weights may differ.
_FEW_TURNED, _FEW_UNEVEN = 16.0, 4.0
#: Noise beside it of this deviation, in steps, hides them.
_HIDDEN = 0.75
#: Blocks of numbers of ones at most; and numbers of ones where steps do not matter.
_BLOCKS, _SOME = 192, 9
#: The distance of frequencies, in one over deviations, and the farthest: e^(-x^2/2) is nothing there.
_APART, _FAR = 0.25, 8.6
#: Of a sum of more turned bits than these nothing is said by how many are turned.
_COUNTED = 64
#: How near a reach is found, as a part of it; and what rounding of floats may add up to.
_NEAR, _ROUNDING = 1e-7, 1e-12
#: What lies so near, in steps, is in one place.
_TIE = 1e-9


def flips_quantile(
    noise: BitFlips,
    cells: int,
    confidence: float,
    part: float = 1.0,
    weights: tuple[float, ...] = (),
    peak: float = 1.0,
) -> float:
    """How many standard deviations the error of a sum of so many bits reaches with a probability at most, whatever the
    bits are.

    ``part`` is that of its variance which is left where degrees help to tell the sum. What they change has the same
    part of each bit's error in it, and beside it many small ones, taken for normal. ``weights`` are those of the bits
    where these are few; ``peak`` is the square of the largest over the mean of all squares.
    """
    p, part = float(noise.probability), min(max(part, 0.001), 1.0)
    confidence += _ROUNDING
    if weights:
        return _weighed_quantile(p, weights, confidence, part)
    return _flips_quantile(p, cells, confidence, part, max(peak, 1.0))


@lru_cache(maxsize=1 << 14)
def _flips_quantile(p: float, cells: int, confidence: float, part: float, peak: float) -> float:
    variance = cells / peak * p * (1 - p)
    # Of the normal noise, in steps of the largest weight.
    spread = math.sqrt(variance * (1 / part - 1))
    if peak > 1 and variance <= _FEW_UNEVEN:
        found = _of_few_uneven(p, cells, confidence, spread, peak)
    elif peak == 1 and variance <= _FEW_TURNED and spread < _HIDDEN:
        found = _of_few(p, cells, confidence, spread)
    else:
        found = _of_many(p, cells / peak, confidence, spread)
    return found / math.hypot(math.sqrt(variance), spread)


def _of_few(p: float, cells: int, confidence: float, spread: float) -> float:
    """In steps; as ones and zeros err alike no more than half of the bits have to be ones."""
    half = cells // 2
    blocks = min(_BLOCKS, 32 + math.ceil(10 * cells * p))
    ones = np.unique(np.linspace(0, half, min(half, blocks) + 1).astype(np.int64))
    first = np.arange(len(ones))
    # The block of one number alone, or of all from one to the next.
    last = first if len(ones) == half + 1 else first[1:]
    deviation = math.sqrt(cells * p * (1 - p))
    points = 1 << math.ceil(math.log2(2 * (9 * deviation + 8)))
    means = (cells - 2 * ones) * p
    starts = np.rint(means) - points // 2
    steps = np.arange(points)
    frequencies = 2 * math.pi / points * np.arange(points // 2 + 1)
    laws = np.maximum(np.fft.irfft(_transforms(p, cells, ones, frequencies, starts).conj(), points), 0.0)
    below = np.pad(laws.cumsum(axis=1), [(0, 0), (1, 0)])

    def up_to(which: IntArray, ends: Array, tie: float) -> FloatArray:
        """How likely each of some laws is up to an end; ``tie`` is below zero where the end is left out."""
        own = ends - starts[which]
        if spread:
            return np.asarray((laws[which] * ndtr((own[:, None] - steps) / spread)).sum(axis=1))
        return np.asarray(below[which, np.clip(np.floor(own + tie) + 1, 0, points).astype(np.int64)])

    def fails(reach: float, which: IntArray) -> Array:
        a, b = first[which], last[which]
        held = up_to(a, means[b] + reach, _TIE) - up_to(b, means[a] - reach, -_TIE)
        return np.asarray(held < confidence)

    return _least(fails, len(last), points / 2 + 9 * spread) + 2 * _TIE


def _of_many(p: float, cells: float, confidence: float, spread: float) -> float:
    """In steps, of a smooth law and what steps add to it."""
    variance = cells * p * (1 - p)
    deviation = math.hypot(math.sqrt(variance), spread)
    far = _FAR if variance > _FEW_TURNED else math.pi * deviation
    if variance <= _FEW_TURNED and spread >= _HIDDEN:
        far = _FAR * deviation / spread
    halves = np.arange(math.ceil(far / _APART)) + 0.5
    frequencies = _APART / deviation * halves
    ones = np.linspace(0, cells / 2, _SOME)
    means = (cells - 2 * ones) * p
    transforms = _transforms(p, cells, ones, frequencies, means).real
    transforms *= np.exp(-np.square(spread * frequencies) / 2) * np.sinc(frequencies / (2 * math.pi)) / halves

    def fails(reach: float, which: IntArray) -> Array:
        return np.asarray(2 / math.pi * (transforms[which] @ np.sin(reach * frequencies)) < confidence)

    # The largest that the sum of sin(2 pi n x) e^(-2 (pi n spread)^2) / (pi n) may be: without noise half a step.
    hidden = -math.expm1(-2 * (math.pi * spread) ** 2)
    steps = min(0.5, -math.log(hidden) / math.pi) if hidden else 0.5
    return _least(fails, _SOME, 10 * deviation) + steps


def _of_few_uneven(p: float, cells: int, confidence: float, spread: float, peak: float) -> float:
    """In steps of the largest weight."""
    missed, variance = 1 - confidence + 2 * _ROUNDING, cells / peak * p * (1 - p)
    tilts = np.geomspace(0.02, 40, 256)
    bennett = (variance * (np.expm1(tilts) - tilts) + np.square(spread * tilts) / 2 - math.log(missed / 2)) / tilts
    turned = np.flatnonzero(1 - bdtr(np.arange(_COUNTED), cells, p) <= missed / 2)
    if not len(turned):
        return float(bennett.min())
    # All that are not turned err by p, which is a sum of weights that is largest where they are alike.
    counted = turned[0] + p * cells / math.sqrt(peak) + normal_quantile(1 - missed / 2) * spread
    return min(float(bennett.min()), float(counted))


def _transforms(p: float, cells: float, ones: Array, frequencies: Array, places: Array) -> Array:
    """The characteristic functions of errors for some numbers of ones, a row each, told from a place of each."""
    bit = np.log1p(p * np.expm1(1j * frequencies))
    exponents = (cells - ones)[:, None] * bit + ones[:, None] * bit.conj() - 1j * places[:, None] * frequencies
    return np.asarray(np.exp(exponents))


def _least(fails: Callable[[float, IntArray], Array], many: int, high: float) -> float:
    """The least reach, rounded up, at which none of many fails; each holds from some reach on, and at ``high``."""
    low, which = 0.0, np.arange(many)
    while high > low * (1 + _NEAR) + _TIE:
        middle = (low + high) / 2
        failing = fails(middle, which)
        if failing.any():
            # Those that hold here hold farther out.
            low, which = middle, which[failing]
        else:
            high = middle
    return high


@lru_cache(maxsize=1024)
def _weighed_quantile(p: float, weights: tuple[float, ...], confidence: float, part: float) -> float:
    """The same of few bits with weights: for all that they can be, all that can be turned over."""
    many = np.arange(1 << len(weights))
    states = (many[:, None] >> np.arange(len(weights))) & 1
    turned = states.sum(axis=1)
    law = p**turned * (1 - p) ** (len(weights) - turned)
    weighed = np.array(weights)
    deviation = math.sqrt(p * (1 - p) * float(weighed @ weighed))
    # A bit that is 1 errs the other way.
    errors = ((states - p) * weighed) @ (1 - 2 * states).T / deviation
    spread = math.sqrt(1 - part)
    return max(_reached(math.sqrt(part) * column, law, spread, confidence) for column in errors.T)


def _reached(values: FloatArray, law: FloatArray, spread: float, confidence: float) -> float:
    """The least r that a value and normal noise beside it lie within with a probability."""
    if not spread:
        order = np.argsort(np.abs(values))
        place = int(np.searchsorted(np.cumsum(law[order]), confidence))
        return float(np.abs(values)[order][min(place, len(order) - 1)]) * (1 + 1e-9)
    low, high = 0.0, float(np.abs(values).max()) + 10 * spread
    while high > low * (1 + 1e-6) + 1e-9:
        middle = (low + high) / 2
        within = float(law @ (ndtr((middle - values) / spread) - ndtr((-middle - values) / spread)))
        low, high = (low, middle) if within >= confidence else (middle, high)
    return high
