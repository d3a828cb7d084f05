"""Noise of measurements, drawn for each value on its own: added to whole numbers, or bits that are turned over."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt

from app.measurements.packing import packed_bits, packed_numbers, unpacked_bits, unpacked_numbers
from app.patience import still_wanted
from app.privacy.costs import GREATEST_UNITS
from app.spaces.lazy import lazy
from app.spaces.tensor import Array, FloatArray, IntArray

BitArray = npt.NDArray[np.uint8]
#: The law of the noise: P[k] proportional to exp(-|k|/t) (laplace) or exp(-k^2/(2 t^2)) (gaussian) on grid units.
NoiseKind = Literal["laplace", "gaussian"]

#: From this scale on (in grid units) the variance of the discrete Gaussian is its scale squared to the last bit: by
#: Poisson summation they differ by a part of about 8 pi^2 t^2 exp(-2 pi^2 t^2).
_SMOOTH = 2.0
#: Of so many values noise is drawn at a time: a sampler's own lists take several times the memory of what it draws.
_AT_ONCE = 1 << 16

#: Probabilities of turning a bit over are multiples of 2^-53: each is a floating-point number.
FLIP_BITS = 53


class Sampler(Protocol):
    """Draws noise; what a source draws is had by its ``take(n)``."""

    def laplace(self, scale: Any, ahead: int = ...) -> Any:
        """A source of discrete Laplace noise of this exact scale in grid units, so many values drawn at a time."""

    def gaussian(self, scale: Any, ahead: int = ...) -> Any:
        """The same of discrete Gaussian noise."""

    def flips(self, probability: Any) -> Any:
        """A source of bits that are 1 with this exact probability."""

    def choose(self, scores: Any, scale: Any) -> int:
        """The exponential mechanism: an index, with probability proportional to exp(score/scale), exact scale."""


def least_scale(bits: int) -> Decimal:
    """The least scale of noise on whole units of 2^-bits counts: a sixteenth of a unit."""
    return Decimal(math.ldexp(1.0, -bits - 4))  # exactly


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
        if not self.scale.is_finite() or not 0 <= self.bits < 62 or self.scale < least_scale(self.bits):
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

    def units(self, values: Any) -> IntArray:
        """Released values as an array of whole units."""
        return np.array(values, dtype=np.int64)

    def on(self, exact: Array, sampler: Sampler) -> IntArray:
        """Exact values in grid units with noise, which is drawn for each of them, a part at a time: until nobody waits
        for it any more (:func:`app.patience.still_wanted`)."""
        step = min(_AT_ONCE, len(exact))
        draw = sampler.laplace if self.kind == "laplace" else sampler.gaussian
        source, units = draw(Fraction(self.scale) * (1 << self.bits), step), exact.astype(np.int64)
        for start in range(0, len(units), step):
            still_wanted()
            part = units[start : start + step]
            part += source.take(len(part))
        return units

    def unbiased(self, units: IntArray) -> FloatArray:
        """The unbiased value of each, in counts."""
        return np.ldexp(units.astype(np.float64), -self.bits)

    def packed(self, units: IntArray) -> str:
        """Released values as text."""
        return packed_numbers(units)

    def unpacked(self, text: str, count: int) -> IntArray:
        """So many values from text.

        Raises:
            TypeError, ValueError: when they are written in any other way.
        """
        return unpacked_numbers(text, count)

    def document(self) -> dict[str, Any]:
        """The noise as JSON."""
        return {"bits": self.bits, "kind": self.kind, "scale": written(self.scale)}

    @classmethod
    def read(cls, document: Mapping[str, Any]) -> Noise:
        """The noise of a document.

        Raises:
            ValueError: when it is none, or so large that nobody draws it.
        """
        try:
            read = cls(document["kind"], Decimal(document["scale"]), int(document["bits"]))
        except (KeyError, TypeError, InvalidOperation) as error:
            raise ValueError("not the document of noise") from error
        if read.scale * 2**read.bits > GREATEST_UNITS:
            raise ValueError("noise of more than 2^62 units is not drawn")
        return read


@dataclass(frozen=True)
class BitFlips:
    """Randomised response: each bit is turned over with probability ``flips / 2^53`` (Warner 1965).

    Raises:
        ValueError: unless the probability is positive and less than one half.
    """

    flips: int

    def __post_init__(self) -> None:
        if type(self.flips) is not int or not 0 < self.flips < 1 << (FLIP_BITS - 1):
            raise ValueError("a bit is turned over with a probability below one half")

    @property
    def kind(self) -> Literal["flips"]:
        """Beside the laws of noise that is added."""
        return "flips"

    @property
    def probability(self) -> Fraction:
        """p, exactly."""
        return Fraction(self.flips, 1 << FLIP_BITS)

    @property
    def scale(self) -> Decimal:
        """p; it takes 53 bits."""
        return Decimal(float(self.probability))

    @property
    def variance(self) -> float:
        """Variance of the unbiased value of a bit, ``p (1-p) / (1-2p)^2``, in edges squared."""
        p = self.probability
        return float(p * (1 - p) / (1 - 2 * p) ** 2)

    def units(self, values: Any) -> BitArray:
        """Released values as an array of bits.

        Raises:
            ValueError: when one is neither 0 nor 1.
        """
        bits = np.array(values, dtype=np.uint8)
        if bits.max() > 1:
            raise ValueError("bits are 0 or 1")
        return bits

    def on(self, exact: Array, sampler: Sampler) -> BitArray:
        """Exact bits, some of them turned over."""
        flips: BitArray = sampler.flips(self.probability).take(len(exact))
        return exact.astype(np.uint8, copy=False) ^ flips

    def unbiased(self, bits: BitArray) -> FloatArray:
        """``(bit - p) / (1 - 2p)``: a released bit is 1 with probability ``p + (1-2p) x``, so its mean is x."""
        p = self.probability
        return np.array([float(-p / (1 - 2 * p)), float((1 - p) / (1 - 2 * p))])[bits]

    def packed(self, bits: BitArray) -> str:
        """Released bits as text."""
        return packed_bits(bits)

    def unpacked(self, text: str, count: int) -> BitArray:
        """So many bits from text.

        Raises:
            TypeError, ValueError: when they are written in any other way.
        """
        return unpacked_bits(text, count)

    def document(self) -> dict[str, Any]:
        """As JSON."""
        return {"bits": FLIP_BITS, "flips": self.flips, "kind": "flips"}


def written(scale: Decimal) -> str:
    """A scale as text, which loses no digit, without zeros that say nothing."""
    text = format(scale, "f")
    return text.rstrip("0").rstrip(".") if "." in text else text


#: How values are released.
Law = Noise | BitFlips


def read_noise(document: Mapping[str, Any]) -> Law:
    """The noise of a document.

    Raises:
        KeyError, TypeError, ValueError: when it is none.
    """
    if document["kind"] != "flips":
        return Noise.read(document)
    if document["bits"] != FLIP_BITS:
        raise ValueError("probabilities of turning a bit over are multiples of 2^-53")
    return BitFlips(document["flips"])
