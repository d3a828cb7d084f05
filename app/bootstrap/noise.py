"""The noise of a service: drawn from the privacy kernel."""

from __future__ import annotations

from typing import Any

from app.privacy.flips import Flips
from app.privacy.noise import Choice, DiscreteGaussian, DiscreteLaplace, NoiseBlock
from app.privacy.race import PoissonCounts

#: Noise values drawn at a time, where a source is used again and again.
NOISE_BLOCK = 1024


class SystemNoise:
    """Noise from OpenDP, drawn ahead in blocks."""

    def laplace(self, scale: Any, ahead: int = NOISE_BLOCK) -> NoiseBlock:
        """Discrete Laplace noise of this exact scale in grid units, so many values drawn at a time."""
        return NoiseBlock(DiscreteLaplace(scale), ahead)

    def gaussian(self, scale: Any, ahead: int = NOISE_BLOCK) -> NoiseBlock:
        """Discrete Gaussian noise of this exact scale in grid units, so many values drawn at a time."""
        return NoiseBlock(DiscreteGaussian(scale), ahead)

    def flips(self, probability: Any) -> Flips:
        """Which bits to turn over, each with this exact probability, from the system's generator."""
        return Flips(probability)

    def poisson(self, mean: Any, cut: int) -> PoissonCounts:
        """Secret counts of a race, from the system's generator."""
        return PoissonCounts(mean, cut)

    def choose(self, scores: Any, scale: Any) -> int:
        """An index, with probability proportional to exp(score/scale)."""
        return Choice(scale).of(scores)
