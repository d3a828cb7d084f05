"""How far errors of sums of bits reach that were released by randomised response."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from scipy.special import gammaln, ndtr

from app.estimation.tails import normal_quantile
from app.measurements.noise import BitFlips
from app.spaces.tensor import FloatArray

#: Of so many bits every number of ones is looked at.
_FEW_BITS = 32


def flips_quantile(
    noise: BitFlips, cells: int, confidence: float, part: float = 1.0, weights: tuple[float, ...] = ()
) -> float:
    """How many standard deviations the error of a sum of so many bits reaches with a probability at most, whatever the
    bits are.

    ``part`` is that of its variance which is left where degrees help to tell the sum. What they change has the same
    part of each bit's error in it, and beside it many small ones, taken for normal. ``weights`` are those of the bits
    where these are few.
    """
    p, part = float(noise.probability), min(max(round(part, 3), 0.001), 1.0)
    if weights:
        return _weighed_quantile(p, weights, confidence, part)
    return _flips_quantile(p, cells, confidence, part)


@lru_cache(maxsize=1024)
def _flips_quantile(p: float, cells: int, confidence: float, part: float) -> float:
    """Of m bits of which k are 1 the error is that of ``Bin(m-k, p) - Bin(k, p)``: most skewed where all are alike, of
    few the worst k is looked for."""
    deviation = math.sqrt(cells * p * (1 - p))
    found = 0.0
    for ones in range(cells // 2 + 1) if cells <= _FEW_BITS else (0,):
        # Beyond it there is nothing to speak of.
        most = min(cells - ones, math.ceil(cells * p + 12 * deviation) + 40)
        law = np.convolve(_binomial(cells - ones, p, most), _binomial(ones, p, ones)[::-1])
        errors = (np.arange(-ones, most + 1) - (cells - 2 * ones) * p) / deviation
        found = max(found, _reached(np.asarray(math.sqrt(part) * errors), law, math.sqrt(1 - part), confidence + 1e-12))
    return found if cells <= _FEW_BITS else max(found, normal_quantile(confidence))


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
    return max(_reached(math.sqrt(part) * column, law, spread, confidence + 1e-12) for column in errors.T)


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


def _binomial(n: int, p: float, most: int) -> FloatArray:
    """How likely 0, 1, ... up to most of n are."""
    k = np.arange(most + 1)
    chosen = gammaln(n + 1) - gammaln(k + 1) - gammaln(n - k + 1)
    return np.asarray(np.exp(chosen + k * math.log(p) + (n - k) * math.log1p(-p)))
