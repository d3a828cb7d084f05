"""A strategy: what is measured at once, so many values."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, ClassVar, Self

from app.measurements.noise import Law
from app.measurements.pricing import Adjacency, Events
from app.spaces.questions import Question
from app.spaces.space import Space
from app.spaces.tensor import IntArray, PrivateTensor


class Strategy(ABC):
    """The interface of strategies.

    Attributes:
        listed: whether a record lists its values, in place of packing them.
        at_once: of how many values noise is drawn at a time; None for all.
        binary: whether its values may be bits, which are turned over.
    """

    listed: ClassVar[bool] = False
    at_once: ClassVar[int | None] = None
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
    def exact(self, space: Space, data: PrivateTensor) -> IntArray:
        """The values before noise is added, in units of its grid."""

    @classmethod
    def exact_all(cls, strategies: Sequence[Self], space: Space, data: PrivateTensor) -> Iterable[IntArray]:
        """Those of several, one after another as they are asked for; a strategy may have them computed together."""
        return (strategy.exact(space, data) for strategy in strategies)

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


def exact_values(strategies: Sequence[Strategy], space: Space, data: PrivateTensor) -> Iterator[IntArray]:
    """The values of strategies before noise is added, one after another."""
    for kind, alike in groupby(strategies, lambda each: type(each)):
        yield from kind.exact_all(list(alike), space, data)
