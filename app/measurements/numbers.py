"""Measurements of vectors of numbers of a graph or a matrix: the noise of each, what was released, its record."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, ClassVar, Generic, Protocol, Self, TypeVar

import numpy as np

from app.measurements.noise import Noise
from app.measurements.packing import packed_numbers, unpacked_numbers
from app.spaces.lazy import lazy
from app.spaces.tensor import FloatArray, IntArray


class Vector(Protocol):
    """What is measured: so many numbers."""

    @property
    def cells(self) -> int:
        """How many numbers."""

    def document(self) -> dict[str, Any]:
        """As JSON."""


S = TypeVar("S", bound=Vector)


@dataclass(frozen=True)
class NumberBuy(Generic[S]):
    """A measurement to be made, and the noise of each number."""

    strategy: S
    noise: Noise

    @property
    def kind(self) -> str:
        """The law of the noise."""
        return self.noise.kind

    @property
    def scale(self) -> Decimal:
        """The noise's parameter: b or sigma, in counts."""
        return self.noise.scale


@dataclass(frozen=True, eq=False)
class NumberRelease(Generic[S]):
    """What was measured, the noise, and what was released.

    A subclass names the member of the record that says what was measured, and the class that reads that.

    Attributes:
        strategy: what was measured.
        noise: of each number.
        units: the released values, one a number: whole units of 2^-bits, not clipped, so that each is unbiased.

    Raises:
        ValueError: when there are other values than numbers.
    """

    strategy: S
    noise: Noise
    units: IntArray
    member: ClassVar[str]
    form: ClassVar[type[Any]]

    def __post_init__(self) -> None:
        units = np.array(self.units, dtype=np.int64)
        if units.shape != (self.strategy.cells,):
            raise ValueError(f"{self.strategy.cells} {self.member} have no values of shape {units.shape}")
        units.setflags(write=False)
        object.__setattr__(self, "units", units)

    @property
    def variance(self) -> float:
        """Variance of each value, in counts squared."""
        return self.noise.variance

    @lazy
    def values(self) -> FloatArray:
        """The unbiased values, in counts."""
        values = np.ldexp(self.units.astype(np.float64), -self.noise.bits)
        values.setflags(write=False)
        return values

    def document(self) -> dict[str, Any]:
        """As JSON: values in base64, as those of edges that are numbers."""
        return {
            self.member: self.strategy.document(),
            "noise": self.noise.document(),
            "values": packed_numbers(self.units),
        }

    @classmethod
    def read(cls, document: Mapping[str, Any]) -> Self:
        """From JSON.

        Raises:
            ValueError: when it is none.
        """
        try:
            strategy, noise = cls.form.read(document[cls.member]), Noise.read(document["noise"])
            return cls(strategy, noise, unpacked_numbers(document["values"], strategy.cells))
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError("not the document of a measurement") from error
