"""How far predictions are off, as a mixture of scales: most cuts may be as foretold while a few differ by far.

A Gaussian process foretells all questions with deviations that are found from all of them together. Where some
questions follow the structure of a graph and others do not, these are too large for most and too small for a few: an
answer that is not off at all is then drawn half of the way to its noisy measurement. So what a prediction is off by is
taken to be normal with the foretold deviation times a factor that every question has of its own. How often each factor
comes is learnt from all measurements by expectation-maximization (Dempster, Laird and Rubin 1977), with a prior that
trusts what was foretold: the empirical Bayes of Stephens (2017), *False discovery rates: a new deal*, for predictions.
"""

from __future__ import annotations

import math

import numpy as np

from app.spaces.tensor import FloatArray

#: Squares of the factors, and what each weighs before anything is measured, in measurements.
SQUARES = np.array([0.0, 1 / 64, 1 / 16, 1 / 4, 1.0, 4.0])
PRIOR = np.array([0.5, 0.5, 0.5, 0.5, 2.0, 0.5])
#: How many past measurements are looked at, and steps that are made after each: the next ones go on from there.
LOOKED, _STEPS = 500, 4


class Scales:
    """How often predictions are off by which multiple of what was foretold."""

    def __init__(self) -> None:
        self.weights: FloatArray = PRIOR / PRIOR.sum()
        self._likelihoods = np.zeros((0, len(SQUARES)))

    @property
    def typical(self) -> float:
        """The root mean square of the factor."""
        return math.sqrt(float(self.weights @ SQUARES))

    def learn(self, residual: float, foretold: float, noise: float) -> None:
        """Learn from a measurement.

        Args:
            residual: what the measured value lies above the predicted one.
            foretold: the variance of the prediction.
            noise: that of the measurement.
        """
        self._likelihoods = np.vstack([self._likelihoods[1 - LOOKED :], _likelihoods(residual, foretold, noise)])
        for _ in range(_STEPS):
            parts = self._likelihoods * self.weights
            counts = PRIOR + (parts / parts.sum(axis=1, keepdims=True)).sum(axis=0)
            self.weights = counts / counts.sum()

    def posterior(self, residual: float, foretold: float, noise: float) -> tuple[float, float]:
        """How far the truth is expected above the predicted value, when a measured value lies so far above it, and the
        variance of that.
        """
        parts = self.weights * _likelihoods(residual, foretold, noise)
        parts /= parts.sum()
        drawn = SQUARES * foretold / (SQUARES * foretold + noise)
        mean = float(parts @ drawn)
        return mean * residual, float(parts @ (drawn * noise + (drawn - mean) ** 2 * residual**2))


def _likelihoods(residual: float, foretold: float, noise: float) -> FloatArray:
    """How likely a residual is by each factor, beside the likeliest."""
    totals = SQUARES * foretold + noise
    logs = -0.5 * (residual**2 / totals + np.log(totals))
    found: FloatArray = np.exp(logs - logs.max())
    return found
