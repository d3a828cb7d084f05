"""Compiled queries: exact integer weights on a public grid.

A compiled query knows its weights as integers in units of ``2^-grid_bits``, can be contracted with any tensor of
its space, and names its own norm, range and canonical form. What constructions do with its weights over whole arrays is
:mod:`app.constructions.dense`. Two spellings of the same weights compile to the same canonical form, whose SHA-256 is
the query's identity in a session. Which kinds there are is :mod:`app.spaces.queries`.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import orjson

from app.spaces.counts import ExactCounts, Tally
from app.spaces.cuts import CutQuestion
from app.spaces.lazy import lazy
from app.spaces.questions import Question
from app.spaces.tensor import Array, FloatArray, IntArray, Tensor

#: What selects a part of an array's cells.
Index = tuple[slice | IntArray, ...]
#: Dense weights by the SHA-256 that canonical forms name them by.
Blobs = Mapping[str, bytes]


class Query(ABC):
    """A compiled query: one number or several, in an order, with labels.

    Where one is a sum of the data with weights ``|f| <= 1`` on a space, neighbours in L1 move it by as much as they
    differ. Of many numbers (:mod:`app.spaces.queries.marginal`, :mod:`app.spaces.queries.blocks`) a unit of the data
    moves one, and what is said of weights holds of those of all of them together.
    """

    #: How many numbers are asked for.
    numbers: int = 1

    #: Where not all sessions answer it, whose sessions do, in words.
    only: str | None = None

    #: The bits of the grid that its answers live on, where that is not the space's own.
    answer_bits: int | None = None

    #: Exact sums are integers in units of 2^-grid_bits of the data's own unit.
    grid_bits: int
    #: Largest distance between an asked weight and the compiled one; times the data's mass it bounds the
    #: error that rounding can make.
    rounding: float
    symmetric: bool = False
    #: Whether every weight is known to be zero, so that the answer is 0 whatever the data.
    is_zero: bool = False

    @property
    def tallies(self) -> tuple[Tally, ...]:
        """The tallies of private data that its exact sums follow from.

        Raises:
            TypeError: for what is no sum.
        """
        raise TypeError(f"{type(self).__name__} is no sum of counts")

    def exact_of(self, told: Sequence[Any]) -> int | IntArray:
        """The exact sums from the numbers of its tallies, in their order: an ``int`` where one number is asked for,
        else a flat array of as many as there are.

        Raises:
            TypeError: for what is no sum.
        """
        raise TypeError(f"{type(self).__name__} is no sum of counts")

    def told(self, values: FloatArray) -> FloatArray:
        """Values of the answer grid as they are told: of a statistic that is a declared number that number."""
        return values

    def exact(self, data: ExactCounts) -> int | IntArray:
        """The exact sums over private data.

        Raises:
            TypeError: for what is no sum.
            NotOffered: when the data do not tell them.
        """
        return self.exact_of(tuple(data.tell(self.tallies)))

    @property
    def range(self) -> tuple[float, float]:
        """Smallest and largest weight over the universe.

        Raises:
            TypeError: for what has none.
        """
        raise TypeError(f"{type(self).__name__} has no weights")

    @lazy
    @abstractmethod
    def canonical(self) -> dict[str, Any]:
        """The canonical form: JSON of integers and strings, its keys ASCII."""

    @lazy
    def canonical_bytes(self) -> bytes:
        """The canonical form as RFC 8785 bytes.

        Of integers and strings these are what any JSON writer makes that sorts keys (ASCII ones, so in every order
        alike), leaves no spaces and escapes only what it must; the elements of a multiset may be any text.
        """
        return orjson.dumps(self.canonical, option=orjson.OPT_SORT_KEYS)

    @lazy
    def digest(self) -> bytes:
        """SHA-256 of the canonical form."""
        return hashlib.sha256(self.canonical_bytes).digest()

    @property
    def blob(self) -> bytes | None:
        """Weights too many for the canonical form, which then names their SHA-256; else None."""
        return None

    @lazy
    def question(self) -> Question:
        """The question to the counts of a table, of which the answers may be some (:meth:`selected`).

        Raises:
            TypeError: for a query that no table has.
        """
        raise TypeError(f"{type(self).__name__} is no query of a table")

    @lazy
    def cuts(self) -> tuple[CutQuestion, ...]:
        """Of sums of a graph or a matrix between sides, what each of its numbers weighs; else nothing."""
        return ()

    @property
    def chosen(self) -> tuple[IntArray, ...] | None:
        """Which of the question's answers are its own, along each of the question's attributes; None where all are."""
        return None

    def selected(self, values: Array) -> Array:
        """Its own among the answers of its question, flat."""
        array = np.asarray(values)
        return (array if self.chosen is None else array[np.ix_(*self.chosen)]).reshape(-1)

    def spread(self, values: FloatArray) -> FloatArray:
        """Its own answers at their places among those of its question, the others zero."""
        whole = np.zeros(self.question.shape)
        whole[... if self.chosen is None else np.ix_(*self.chosen)] = values.reshape(
            whole.shape if self.chosen is None else [len(cells) for cells in self.chosen]
        )
        return whole

    def adding(self, units: IntArray) -> IntArray:
        """Its answers on a grid, those that are sums of others made so."""
        return units

    @property
    def labels(self) -> list[dict[str, Any]]:
        """The axes of an answer that is a table as JSON: the attribute of each, and what its cells are called; none
        where it is one number.
        """
        return []

    def ordered(self, values: Array) -> Array:
        """Numbers, in the order of :meth:`exact`, in the order of the answer: row-major along its axes."""
        return values


class LinearQuery(Query):
    """One number, ``<f, x>`` for weights ``f`` and data ``x``."""

    @abstractmethod
    def exact_of(self, told: Sequence[Any]) -> int:
        """``<f, x>`` from the numbers of its tallies. Exact."""

    @abstractmethod
    def inner(self, hypothesis: Tensor) -> float:
        """``<f, h>`` in the hypothesis' units."""

    @property
    @abstractmethod
    def range(self) -> tuple[float, float]: ...

    @property
    @abstractmethod
    def norm2sq(self) -> float:
        """Sum of squared weights over the universe."""


def linear(query: Query) -> LinearQuery:
    """A query that is known to be linear, as all are that a construction answers."""
    assert isinstance(query, LinearQuery)
    return query


class PartedQuery(LinearQuery):
    """A query that tells its weights a part at a time: work on an array needs no second one of its size."""

    @abstractmethod
    def parts(self) -> Iterator[tuple[Index, FloatArray]]:
        """All cells that may weigh something, each once: what selects a part of them, and the weights there.

        The weights are the caller's own and broadcast over the part.
        """


class FullQuery(PartedQuery):
    """One whose parts are all cells."""

    @property
    @abstractmethod
    def shape(self) -> tuple[int, ...]:
        """The space's."""

    def matrix(self) -> FloatArray:
        """The weights as real numbers, in an array of the caller's own."""
        result = np.empty(self.shape)
        for part, weights in self.parts():
            result[part] = weights
        return result
