"""Answers and how far they may be off."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

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
        converged: whether the fit that they are of met its tolerance, where they are of one.
    """

    values: FloatArray
    standard_errors: FloatArray
    lows: FloatArray
    highs: FloatArray
    unbiased: Array
    confidence: float
    linear: FloatArray | None = None
    linear_errors: FloatArray | None = None
    converged: bool = True

    def each(self, change: Callable[[Array], Array]) -> Estimates:
        """The same with something done to every array, such as some of its numbers taken."""
        linear, errors = (None if array is None else change(array) for array in (self.linear, self.linear_errors))
        values, standard_errors = change(self.values), change(self.standard_errors)
        lows, highs, unbiased = change(self.lows), change(self.highs), change(self.unbiased).astype(bool)
        return replace(
            self,
            values=values,
            standard_errors=standard_errors,
            lows=lows,
            highs=highs,
            unbiased=unbiased,
            linear=linear,
            linear_errors=errors,
        )

    def chosen(self, least: float | FloatArray, most: float | FloatArray, deviations: float) -> Estimates:
        """The same for a question that may have been chosen by what was released: what a model alone says it may have
        been chosen by, too, so that such intervals are all that is possible, and none where that has no end.

        Args:
            least, most: what the values can be, all of them or each.
            deviations: by how many standard errors intervals reach.
        """
        fitted = ~self.unbiased & ~np.isnan(self.values)
        lows, highs = (np.where(fitted, end, own) for end, own in ((least, self.lows), (most, self.highs)))
        lows, highs = np.minimum(lows, self.values), np.maximum(highs, self.values)
        lows, highs = (np.where(fitted & ~np.isfinite(lows + highs), np.nan, ends) for ends in (lows, highs))
        arms = np.maximum(self.values - lows, highs - self.values) / deviations
        return replace(self, lows=lows, highs=highs, standard_errors=np.where(fitted, arms, self.standard_errors))

    def holding(self, values: FloatArray) -> Estimates:
        """The same with intervals that reach to some values, where there are any: those that are told, which are
        rounded."""
        lows, highs = np.minimum(self.lows, values), np.maximum(self.highs, values)
        told = ~np.isnan(values)
        return replace(self, lows=np.where(told, lows, self.lows), highs=np.where(told, highs, self.highs))

    @classmethod
    def bare(cls, values: FloatArray, confidence: float) -> Estimates:
        """Values of whose errors nothing is known."""
        unknown = np.full(np.shape(values), np.nan)
        return cls(values, unknown, unknown, unknown, np.zeros(np.shape(values), dtype=bool), confidence)
