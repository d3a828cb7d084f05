"""The interface of constructions, and the public facts it may start from."""

from __future__ import annotations

import struct
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar, get_args

import numpy as np

from app.constructions.dumps import Dump
from app.spaces.errors import InvalidQuery
from app.spaces.partition import Marginal
from app.spaces.query import LinearQuery
from app.spaces.space import Space
from app.spaces.tensor import FloatArray

#: How a construction uses a measurement. ``projection`` (the default) is the Bregman projection on the half-space
#: that the measurement certifies, ``paper`` the fixed-length step of the source paper: these keep the update bound.
#: ``full`` goes all the way to the released value; ``refit`` then fits all released values anew. These are often
#: better and have no bound: an adversary can make them need more updates than any that is known.
Step = Literal["projection", "paper", "full", "refit"]
#: The steps that keep the update bound.
BoundedStep = Literal["projection", "paper"]
BOUNDED_STEPS: tuple[Step, ...] = get_args(BoundedStep)
#: Bytes that answers and updates use whatever the universe: the parts in which arrays are worked on.
PARTS_BYTES = 4 << 20
#: An update stops this fraction of the mass short of the simplex' boundary, from where no step returns.
SIMPLEX_MARGIN = 2.0**-30
_Real = TypeVar("_Real", float, FloatArray)


@dataclass(frozen=True)
class PublicFacts:
    """The public facts of the data: known without looking at it, or released with noise.

    Attributes:
        mass: the sum of counts (exact where public, else padded upward); None where it is not known.
        padded: whether ``mass`` is an upper bound only, so that a slack cell must hold the difference.
        norms: upper bounds on norms of the data, by name.
    """

    mass: float | None = None
    padded: bool = False
    norms: Mapping[str, float] = field(default_factory=dict)

    def known(self, fact: str) -> bool:
        """Whether the named fact is there."""
        return self.mass is not None if fact == "mass" else fact in self.norms


@dataclass(frozen=True)
class MeasuredQuery:
    """A query with its released value (counts) and the bound its noise keeps with probability 1 - beta."""

    query: LinearQuery
    value: float
    noise_bound: float


@dataclass(frozen=True, eq=False)
class DenseHypothesis:
    """A hypothesis as counts of every cell, in the space's shape."""

    array: FloatArray

    def content(self) -> memoryview:
        """Little-endian float64, row-major: the bytes of its digest. Mostly no copy."""
        flat: Any = np.ascontiguousarray(self.array, dtype="<f8").reshape(-1)
        return memoryview(flat.view(np.uint8))


@dataclass(frozen=True, eq=False)
class ListedHypothesis:
    """A hypothesis over an unbounded universe: counts of the elements it tells apart, by order of appearance.

    Any other element counts ``other``.
    """

    elements: tuple[str, ...]
    counts: FloatArray
    other: float

    def content(self) -> bytes:
        """For each element the length of its UTF-8 bytes (little-endian 64 bits), these, and its count; the last
        count is that of any other element."""
        parts = []
        for element, count in zip(self.elements, self.counts.tolist(), strict=True):
            name = element.encode()
            parts.append(struct.pack("<Q", len(name)) + name + struct.pack("<d", count))
        return b"".join(parts) + struct.pack("<d", self.other)


Hypothesis = DenseHypothesis | ListedHypothesis


class Construction(ABC):
    """An iterative database construction (GRU11, definition 3.1): state, answer, update, bound.

    States are owned by their holder: :meth:`update` changes the given one in place.
    """

    space: Space

    @abstractmethod
    def nbytes(self, updates: int) -> int:
        """About how many bytes a state takes after so many updates."""

    @abstractmethod
    def working_bytes(self, state: Any, query: LinearQuery) -> int:
        """The most bytes that answering a query and learning from it use beyond the present state, its growth included.

        Whoever plays a round holds so much ready before noise is drawn, so that no update can run out of memory where a
        miss would not (docs/privacy.md, section 11).
        """

    @property
    def infeasible(self) -> str | None:
        """Why a state cannot be held at these parameters and what to change; None where it can."""
        return None

    @property
    def most_cells(self) -> int | None:
        """Over how many cells a state could be held at these parameters; None where cells are not what limits it."""
        return None

    @property
    def most_updates(self) -> int | None:
        """The most updates of which each takes a few seconds at most; None where their time does not grow with their
        number.

        A state that is fitted anew to all that was measured takes longer with each update: a session of many more would
        end in updates that take longer than a request may.
        """
        return None

    def admit(self, query: LinearQuery) -> None:
        """Refuse a query outside the class that the construction was promised; unless overridden all are admitted.

        Raises:
            InvalidQuery: naming what the class asks for.
        """
        return

    def has_room(self, state: Any, query: LinearQuery) -> bool:
        """Whether the state could learn the query, should its answer prove wrong; always unless overridden."""
        return True

    @abstractmethod
    def export(self, state: Any) -> Hypothesis:
        """The hypothesis as data to look at."""

    @abstractmethod
    def start(self) -> Any:
        """The hypothesis before any measurement."""

    @abstractmethod
    def answer(self, state: Any, query: LinearQuery) -> float:
        """<f, h> in counts."""

    @abstractmethod
    def update(self, state: Any, measurement: MeasuredQuery) -> None:
        """Move the hypothesis towards a measurement that it missed, in place."""

    @abstractmethod
    def dump(self, state: Any) -> Dump:
        """The state in numbers, every bit of them: what :meth:`load` makes of it answers and learns alike."""

    @abstractmethod
    def load(self, dump: Dump) -> Any:
        """The state of a dump, which is its owner from here on."""

    @abstractmethod
    def bound(self, progress: float) -> float | None:
        """Most updates there can be when each is made at a true gap of at least ``progress`` counts.

        None where no bound is known from public facts.
        """

    @abstractmethod
    def step_size(self, progress: float) -> float | None:
        """The rate a fixed-length step takes at the given progress; None where there are no such steps."""


class CellConstruction(Construction):
    """A construction over a finite universe, whose hypothesis can be had as an array."""

    def nbytes(self, updates: int) -> int:
        """Unless overridden, a number for every cell."""
        return self.space.dense_bytes

    def working_bytes(self, state: Any, query: LinearQuery) -> int:
        """Unless overridden, two numbers for every cell."""
        return 2 * self.space.dense_bytes + PARTS_BYTES

    @abstractmethod
    def dense(self, state: Any) -> FloatArray:
        """The hypothesis as an array of the space's shape."""

    def export(self, state: Any) -> Hypothesis:
        """The dense array."""
        return DenseHypothesis(self.dense(state))


class MarginalConstruction(CellConstruction):
    """A construction that learns all cells of a marginal of a table at once."""

    @abstractmethod
    def learn_cells(
        self, state: Any, marginal: Marginal, present: FloatArray, values: FloatArray, noise_bound: float
    ) -> None:
        """Make the updates of all cells whose values are farther off than their noise bound, the farthest first.

        They are those of :meth:`update` one after another, with ``step="projection"``, to the rounding of float64: the
        cells are disjoint, so that nothing but what the marginal counts decides what becomes of any.

        Args:
            state: changed in place.
            marginal: whose cells were measured; at least two.
            present: what the hypothesis counts in them, in the marginal's shape.
            values: as measured.
            noise_bound: of each value.
        """


def simplex_reach(low: _Real, high: _Real, mass: float) -> tuple[_Real, _Real]:
    """The least and the greatest answer, in counts, that an update within the simplex aims at.

    Args:
        low: the smallest weight of the query, or of each of several.
        high: the largest.
        mass: of the simplex, in counts.
    """
    margin = SIMPLEX_MARGIN * (high - low)
    return (low + margin) * mass, (high - margin) * mass


def certified(measurement: MeasuredQuery, present: float) -> float:
    """The edge of the half-space that holds the data: the released value, drawn back by the noise bound.

    It lies between the present answer and the value: where the gap is below the noise bound the measurement
    certifies nothing and the present answer itself is returned.
    """
    if measurement.value > present:
        return max(present, measurement.value - measurement.noise_bound)
    return min(present, measurement.value + measurement.noise_bound)


def target_of(measurement: MeasuredQuery, present: float, step: Step) -> float:
    """The answer that an update aims at: the certified edge, or the released value itself."""
    return measurement.value if step in ("full", "refit") else certified(measurement, present)


def check_zeta(zeta: float, promised: float | None) -> None:
    """Refuse a query whose dual norm passes what the session was promised.

    Raises:
        InvalidQuery: naming both.
    """
    # A promise is kept up to the rounding of powers and roots.
    if promised is not None and zeta > promised * (1 + 2.0**-40):
        raise InvalidQuery(
            f"the query's dual norm is {zeta:.6g}, where the session was promised at most {promised:.6g}"
        )
