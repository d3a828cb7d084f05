"""Rounding of weights to a grid, with a bound on how far it moves them."""

from __future__ import annotations

import numpy as np

from app.spaces.tensor import FloatArray, IntArray

#: Products of weights, and of an error with a mass, may vanish in float64 where they are not zero; a bound must not.
UNDERFLOW = 2.0**-1000
#: Of a few such products and sums, each to the nearest number, and of one more with a mass: a bound stays above all.
ROUNDED_UP = 1 + 2.0**-40


def bounding(error: float) -> float:
    """A bound on an error that was computed in float64, and on what multiplying it by a mass rounds away."""
    return error * ROUNDED_UP + UNDERFLOW


def rounding_error(largest: float, bits: int) -> float:
    """How far rounding moves a weight at most, from the largest such distance in units of 2^-bits."""
    return bounding(largest * 2.0**-bits) if largest else 0.0


def on_grid(weights: FloatArray, bits: int) -> tuple[IntArray, float]:
    """Weights, at least one, as integers in units of 2^-bits, and a bound on how far each is from the one given."""
    scaled = np.ldexp(weights, bits)
    rounded = np.rint(scaled)
    return rounded.astype(np.int64), rounding_error(float(np.abs(rounded - scaled).max()), bits)
