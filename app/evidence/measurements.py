"""Measurements: noisy counts of the cells of a marginal of a table, released once and public for ever."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any, Literal

import numpy as np

from app.spaces.lazy import lazy
from app.spaces.partition import Marginal
from app.spaces.tensor import FloatArray, IntArray

#: The law of the noise: P[k] proportional to exp(-|k|/t) (laplace) or exp(-k^2/(2 t^2)) (gaussian) on grid units.
NoiseKind = Literal["laplace", "gaussian"]

#: From this scale on (in grid units) the variance of the discrete Gaussian is its scale squared to the last bit: by
#: Poisson summation they differ by a part of about 8 pi^2 t^2 exp(-2 pi^2 t^2).
_SMOOTH = 2.0
#: Of a measurement of more cells than this so many sums are remembered.
_MANY, _MOST_SUMS = 1 << 14, 256


@dataclass(frozen=True)
class Noise:
    """The noise of a measurement, drawn for each cell on its own, on whole units of 2^-bits counts.

    ``scale`` is in counts: b of Laplace noise, sigma of Gaussian noise.

    Raises:
        ValueError: for a scale that is not finite or less than a sixteenth of a grid unit, or bits out of range.
    """

    kind: NoiseKind
    scale: Decimal
    bits: int

    def __post_init__(self) -> None:
        if self.kind not in ("laplace", "gaussian"):
            raise ValueError("noise is laplace or gaussian")
        if not self.scale.is_finite() or not 0 <= self.bits < 62 or self.scale * 2**self.bits * 16 < 1:
            raise ValueError("noise is finite, on a grid of 2^0 to 2^-61, its scale a sixteenth of a unit or more")

    @lazy
    def variance(self) -> float:
        """Variance of one cell in counts squared: that of the discrete law, to the precision of float64.

        With t the scale in grid units it is ``1/(2 sinh(1/(2t))^2)`` for Laplace (twice a geometric law of ratio
        exp(-1/t) on one side) and the sum over the integers for Gaussian noise.
        """
        t = math.ldexp(float(self.scale), self.bits)
        if self.kind == "laplace":
            units = 0.5 / math.sinh(0.5 / t) ** 2
        elif t >= _SMOOTH:
            units = t * t
        else:
            squares = np.arange(1.0, 40 * _SMOOTH) ** 2
            weights = np.exp(-squares / (2 * t * t))
            units = float(2 * (squares @ weights) / (1 + 2 * weights.sum()))
        return math.ldexp(units, -2 * self.bits)

    def document(self) -> dict[str, Any]:
        """The noise as JSON; the scale as text, which loses no digit, without zeros that say nothing."""
        scale = format(self.scale, "f")
        return {"bits": self.bits, "kind": self.kind, "scale": scale.rstrip("0").rstrip(".") if "." in scale else scale}

    @classmethod
    def read(cls, document: Mapping[str, Any]) -> Noise:
        """The noise of a document.

        Raises:
            ValueError: when it is none.
        """
        try:
            return cls(document["kind"], Decimal(document["scale"]), int(document["bits"]))
        except (KeyError, TypeError, InvalidOperation) as error:
            raise ValueError("not the document of noise") from error


@dataclass(frozen=True, eq=False)
class Measurement:
    """A marginal, the noise it was released with, and what was released.

    ``units`` are the released values in units of 2^-bits counts, in the marginal's shape: not clipped, so that each
    is unbiased. What was counted may have been multiplied before noise was added: a ``multiplier`` divides values and
    noise alike.

    Raises:
        ValueError: when the values are not of the marginal's shape.
    """

    marginal: Marginal
    noise: Noise
    units: IntArray
    multiplier: int = 1

    def __post_init__(self) -> None:
        units = np.array(self.units, dtype=np.int64)
        if units.shape != self.marginal.shape:
            raise ValueError(f"a marginal of shape {self.marginal.shape} has no values of shape {units.shape}")
        units.setflags(write=False)
        object.__setattr__(self, "units", units)

    @property
    def variance(self) -> float:
        """Variance of each value, in counts squared."""
        return self.noise.variance / self.multiplier**2

    @lazy
    def values(self) -> FloatArray:
        """The released values in counts."""
        values = np.ldexp(self.units.astype(np.float64), -self.noise.bits) / self.multiplier
        values.setflags(write=False)
        return values

    @lazy
    def _sums(self) -> dict[frozenset[int], FloatArray]:
        """Sums over many cells that were asked for."""
        return {}

    def onto(self, attributes: frozenset[int]) -> FloatArray:
        """The values summed over all attributes but the given ones."""
        kept = self._sums.get(attributes)
        if kept is None:
            outside = tuple(k for k, a in enumerate(self.marginal.attributes) if a not in attributes)
            kept = self.values.sum(axis=outside)
            if self.marginal.cells > _MANY and len(self._sums) < _MOST_SUMS:
                self._sums[attributes] = kept
        return kept
