"""Graphs of which every bit was flipped with a probability: what it tells without bias."""

from __future__ import annotations

import math

import numpy as np

from app.geometry.norms import FloatArray
from app.releases.synthetic_graph import NoisyEdges


def from_flipped(bits: FloatArray, flip: float, *, undirected: bool = False, loops: bool = True) -> NoisyEdges:
    """The unbiased values of bits that were each flipped with a probability, randomised response (Warner 1965).

    ``(bit - flip)/(1 - 2 flip)``, with standard deviation ``(flip (1 - flip))^(1/2)/(1 - 2 flip)``; for epsilon the
    probability is ``1/(1 + e^epsilon)``.

    Raises:
        ValueError: unless 0 < flip < 1/2.
    """
    if not 0 < flip < 0.5:
        raise ValueError("a bit is flipped with a probability between 0 and 1/2")
    values = (bits - flip) / (1 - 2 * flip)
    if not loops:
        np.fill_diagonal(values, 0)
    return NoisyEdges(values, math.sqrt(flip * (1 - flip)) / (1 - 2 * flip), undirected, loops)
