"""Numbers behind noisy ones: their posterior under a prior that is learnt from all of them.

Many numbers of one kind, such as the degrees of a graph's nodes, were each released with noise. What they are like
together is told by the noisy ones: the prior is a mixture of narrow normal laws whose weights are of the greatest
likelihood (Kiefer and Wolfowitz 1956; found by expectation and maximisation), so that two kinds of nodes are told apart
and a long tail is kept. Components have widths, so that nothing is drawn to a grid. Where numbers are few for how far
apart they lie the search ends early: each would become a kind of its own, and be taken for certain.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from app.spaces.tensor import FloatArray

#: Components lie a third of the noise's deviation apart up to so many of them, and farther by this factor beyond.
_STEP, _EVEN, _FACTOR = 1 / 3, 300, 1.1
#: The noisy numbers are binned where there are more, as they are for the weights alone.
_BINS = 3000
_PASSES, _NEAR = 200, 1e-7
#: There are this many passes for each other number within a deviation, on average.
_EACH = 0.5


@dataclass(frozen=True, eq=False)
class Posterior:
    """The posterior of each number.

    Attributes:
        means: of the posterior.
        slopes: by how much a mean grows with its noisy number, from 0 to 1: the posterior's variance is this times that
            of the noise.
    """

    means: FloatArray
    slopes: FloatArray


def posterior(noisy: FloatArray, variance: float, most: float) -> Posterior:
    """The posterior of numbers from 0 to ``most``, each released once with normal noise of a variance."""
    if not variance or not len(noisy):
        return Posterior(np.clip(noisy, 0.0, most), np.ones(len(noisy)))
    deviation = math.sqrt(variance)
    high = min(max(float(noisy.max()), deviation), most)
    centres, widths = _components(deviation, high)
    weights = _weights(noisy, variance, centres, widths)
    if len(noisy) <= _BINS:
        means, slopes = _moments(noisy, variance, centres, widths, weights)
    else:
        # Both are smooth in the noisy number: found where numbers lie, and between them where these are far apart.
        ranks = np.linspace(0, len(noisy) - 1, _BINS).astype(np.int64)
        even = np.linspace(float(noisy.min()), float(noisy.max()), _BINS)
        places = np.unique(np.concatenate([np.sort(noisy)[ranks], even]))
        found = _moments(places, variance, centres, widths, weights)
        means, slopes = (np.interp(noisy, places, each) for each in found)
    return Posterior(np.clip(means, 0.0, most), np.clip(slopes, 0.0, 1.0))


def _moments(
    noisy: FloatArray, variance: float, centres: FloatArray, widths: FloatArray, weights: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """The posterior's mean of each noisy number, and its variance in parts of the noise's."""
    held = _likelihood(noisy[:, None], variance, centres, widths) * weights
    held /= np.maximum(held.sum(axis=1, keepdims=True), 1e-300)
    shares = widths**2 / (widths**2 + variance)
    moved = centres + shares * (noisy[:, None] - centres)
    means: FloatArray = (held * moved).sum(axis=1)
    slopes: FloatArray = ((held * (shares * variance + moved**2)).sum(axis=1) - means**2) / variance
    return means, slopes


def _components(deviation: float, high: float) -> tuple[FloatArray, FloatArray]:
    """Where components lie and how wide they are."""
    step = _STEP * deviation
    centres: FloatArray = step * np.arange(min(math.ceil(high / step), _EVEN) + 1, dtype=np.float64)
    if centres[-1] < high:
        beyond = math.ceil(math.log(high / centres[-1]) / math.log(_FACTOR))
        centres = np.concatenate([centres, centres[-1] * _FACTOR ** np.arange(1, beyond + 1)])
    widths: FloatArray = np.diff(centres, append=centres[-1] + step) / 2
    return centres, widths


def _weights(noisy: FloatArray, variance: float, centres: FloatArray, widths: FloatArray) -> FloatArray:
    """The weights of the greatest likelihood."""
    counts = np.ones(len(noisy))
    ordered = np.sort(noisy)
    first, last = (np.searchsorted(ordered, ordered + by) for by in (-math.sqrt(variance), math.sqrt(variance)))
    passes = min(max(round(_EACH * (float((last - first).mean()) - 1)), 1), _PASSES)
    if len(noisy) > _BINS:
        # Far less wide than the noise where the numbers are many for their range, and else as they are far apart.
        parts = np.array_split(ordered, _BINS)
        noisy, counts = np.array([float(p.mean()) for p in parts]), np.array([float(len(p)) for p in parts])
    table = _likelihood(noisy[:, None], variance, centres, widths)
    weights = np.full(len(centres), 1 / len(centres))
    total, before = float(counts.sum()), -math.inf
    for _ in range(passes):
        mixed = np.maximum(table @ weights, 1e-300)
        weights = weights * ((counts / mixed) @ table) / total
        likelihood = float(counts @ np.log(mixed)) / total
        if likelihood - before < _NEAR:
            break
        before = likelihood
    return weights


def _likelihood(noisy: FloatArray, variance: float, centres: FloatArray, widths: FloatArray) -> FloatArray:
    """The density of each noisy number under each component, but for a factor of each number."""
    spreads = widths**2 + variance
    exponents = -((noisy - centres) ** 2) / (2 * spreads) - 0.5 * np.log(spreads)
    density: FloatArray = np.exp(exponents - exponents.max(axis=1, keepdims=True))
    return density
