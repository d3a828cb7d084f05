"""What every construction offers, and the public facts it may start from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from app.spaces.query import Query
from app.spaces.tensor import FloatArray

#: How a construction uses a measurement: the Bregman projection on the half-space the measurement certifies
#: (the default; keeps the update bound), or the fixed-length step of the source paper.
Step = Literal["projection", "paper"]


@dataclass(frozen=True)
class PublicFacts:
    """What is known of the data without looking at it, or was bought with noise.

    ``mass`` is the sum of counts the hypothesis may take (exact where public, else padded upward);
    ``padded`` tells that it is an upper bound only, so that a slack cell must hold the difference. ``norms``
    are upper bounds on norms of the data, by name.
    """

    mass: float | None = None
    padded: bool = False
    norms: Mapping[str, float] = field(default_factory=dict)

    def known(self, fact: str) -> bool:
        """Whether the named fact is there."""
        return self.mass is not None if fact == "mass" else fact in self.norms


@dataclass(frozen=True)
class Measurement:
    """A query with its released value (counts) and the bound its noise keeps with probability 1 - beta."""

    query: Query
    value: float
    noise_bound: float


class Construction(Protocol):
    """An iterative database construction (GRU11, definition 3.1): state, answer, update, bound.

    States are owned by their holder: :meth:`update` changes the given one in place.
    """

    def start(self) -> Any:
        """The hypothesis before any measurement."""

    def answer(self, state: Any, query: Query) -> float:
        """<f, h> in counts."""

    def update(self, state: Any, measurement: Measurement) -> None:
        """Move the hypothesis towards a measurement that it missed, in place."""

    def bound(self, progress: float) -> float | None:
        """Most updates there can be when each is made at a true gap of at least ``progress`` counts.

        None where no bound is known from public facts.
        """

    def dense(self, state: Any) -> FloatArray:
        """The hypothesis as an array of the space's shape."""

    def step_size(self, progress: float) -> float:
        """The rate a fixed-length step takes at the given progress."""


def certified(measurement: Measurement, present: float) -> float:
    """The edge of the half-space that holds the data: the released value, drawn back by the noise bound.

    It lies between the present answer and the value: where the gap is below the noise bound the measurement
    certifies nothing and the present answer itself is returned.
    """
    if measurement.value > present:
        return max(present, measurement.value - measurement.noise_bound)
    return min(present, measurement.value + measurement.noise_bound)
