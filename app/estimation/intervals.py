"""Answers and how far they may be off."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from app.spaces.tensor import Array, FloatArray


@dataclass(frozen=True, slots=True, eq=False)
class Estimates:
    """Values with their intervals, arrays of one shape, in the unit of what is asked; NaN where nothing is known.

    Attributes:
        values: shown.
        standard_errors: of the values shown.
        lows, highs: the interval.
        unbiased: where it is that of a value whose error is known exactly; elsewhere it is the model's.
        confidence: of the interval.
        linear, linear_errors: the best linear unbiased values and their standard errors, NaN where there are none;
            None where they are the values shown.
    """

    values: FloatArray
    standard_errors: FloatArray
    lows: FloatArray
    highs: FloatArray
    unbiased: Array
    confidence: float
    linear: FloatArray | None = None
    linear_errors: FloatArray | None = None

    def each(self, told: Callable[[Array], Array]) -> Estimates:
        """The same with something done to every array, such as some of its numbers taken."""
        linear, errors = (None if array is None else told(array) for array in (self.linear, self.linear_errors))
        values, standard_errors = told(self.values), told(self.standard_errors)
        unbiased = told(self.unbiased).astype(bool)
        return Estimates(
            values, standard_errors, told(self.lows), told(self.highs), unbiased, self.confidence, linear, errors
        )

    @classmethod
    def bare(cls, values: FloatArray, confidence: float) -> Estimates:
        """Values of whose errors nothing is known."""
        unknown = np.full(np.shape(values), np.nan)
        return cls(values, unknown, unknown, unknown, np.zeros(np.shape(values), dtype=bool), confidence)
