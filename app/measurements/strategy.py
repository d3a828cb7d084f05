"""A strategy: what is measured at once, so many values."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, ClassVar

from app.measurements.noise import Law, Sampler
from app.measurements.pricing import Adjacency, Events
from app.spaces.counts import ExactCounts, Tally
from app.spaces.questions import Question
from app.spaces.space import Space
from app.spaces.tensor import Array, IntArray


class Strategy(ABC):
    """The interface of strategies.

    Attributes:
        listed: whether a record lists its values, in place of packing them.
        binary: whether its values may be bits, which are turned over.
    """

    listed: ClassVar[bool] = False
    binary: ClassVar[bool] = False

    @property
    @abstractmethod
    def tag(self) -> str:
        """The member of a record that says what was measured."""

    @property
    @abstractmethod
    def cells(self) -> int:
        """How many values are released."""

    @abstractmethod
    def check(self, space: Space) -> None:
        """Raise ValueError unless it is one of data of this space."""

    @abstractmethod
    def tallies(self, space: Space) -> tuple[Tally, ...]:
        """The tallies of private data that its values follow from."""

    @abstractmethod
    def exact_of(self, space: Space, told: Sequence[Any]) -> IntArray:
        """The values before noise is added, in units of its grid, from the numbers of its tallies in their order."""

    def exact(self, space: Space, data: ExactCounts) -> IntArray:
        """The values before noise is added, in units of its grid.

        Raises:
            NotOffered: when the data do not tell them.
        """
        (values,) = exact_values([self], space, data)
        return values

    def released(self, exact: Array, noise: Law, sampler: Sampler) -> Array:
        """What is released of exact values: each with noise of its own."""
        return noise.on(exact, sampler)

    def check_units(self, units: Array) -> None:
        """Raise ValueError unless these values may have been released."""
        if units.shape != (self.cells,):
            raise ValueError(f"{self.cells} {self.tag} have no values of shape {units.shape}")

    @abstractmethod
    def events(self, noise: Law, adjacency: Adjacency) -> Events:
        """The events that it costs budget by where each value is released with noise of its own, and neighbours are so
        far apart.

        Raises:
            PrivacyError, ValueError: when it is not released with such noise.
        """

    @abstractmethod
    def describe(self, space: Space) -> dict[str, Any]:
        """The description of it where measurements are listed, as JSON: its type first, and how many values it has."""

    @property
    def longest(self) -> int:
        """How long a list of numbers it is shown with, where that may be too long."""
        return 0

    def beside(self) -> dict[str, Any]:
        """Facts that are shown beside the values, as JSON."""
        return {}

    @abstractmethod
    def document(self) -> Any:
        """As JSON, which :meth:`read` reads."""

    @classmethod
    @abstractmethod
    def read(cls, document: Any) -> Strategy:
        """From JSON.

        Raises:
            KeyError, TypeError, ValueError: when it is none.
        """

    @classmethod
    def readers(cls) -> Mapping[str, Callable[[Any], Strategy]]:
        """For each tag what reads the strategy of its document, as :meth:`read` does."""
        return {str(cls.tag): cls.read}

    @classmethod
    def serving(cls, question: Question) -> Sequence[Strategy]:
        """Of its kind what answers a question about a table in one measurement, beside the question's own marginal."""
        return ()


def exact_values(strategies: Sequence[Strategy], space: Space, data: ExactCounts) -> Iterator[IntArray]:
    """The values of strategies before noise is added, one after another as they are taken; the data are asked for all
    of them at once.

    Raises:
        NotOffered: before anything is counted, when the data do not tell those of one.
    """
    asked = [strategy.tallies(space) for strategy in strategies]
    told = data.tell([tally for each in asked for tally in each])
    return (
        strategy.exact_of(space, list(islice(told, len(own)))) for strategy, own in zip(strategies, asked, strict=True)
    )
