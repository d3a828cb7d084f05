"""Queries of a graph or a matrix measured on their own: the values that one asks for, each with noise.

Where neighbours differ by gamma in the L1 norm over the cells, the value of a cut or rank-one query, whose weights lie
in [-1, 1], moves by gamma at most (docs/privacy.md, 9.8).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import orjson

from app.declarations.errors import CuratorError
from app.measurements.noise import Law, Noise
from app.measurements.pricing import Adjacency, Events, answer
from app.measurements.strategy import Strategy
from app.spaces.counts import Tally
from app.spaces.queries.degrees import CompiledDegrees
from app.spaces.queries.registry import from_canonical
from app.spaces.query import Query
from app.spaces.space import Space
from app.spaces.tensor import IntArray


@dataclass(frozen=True, eq=False)
class Asked(Strategy):
    """The strategy of a query's own values.

    Attributes:
        form: the query's canonical form.
        numbers: how many values it asks for.
        compiled: the query itself, where it is at hand.
    """

    form: Mapping[str, Any]
    numbers: int
    compiled: Query | None = field(default=None, repr=False)
    tag = "asked"

    @property
    def cells(self) -> int:
        """Number of values that are released."""
        return self.numbers

    @classmethod
    def of(cls, query: Query) -> Asked:
        """The values of a query."""
        return cls(query.canonical, query.numbers, query)

    def query(self, space: Space) -> Query:
        """The query that it stands for.

        Raises:
            ValueError: when it is none of this space, or asks for other numbers.
        """
        try:
            query = from_canonical(space, self.form, {})
        except CuratorError as error:
            raise ValueError("not a query of this graph or matrix") from error
        if query.numbers != self.numbers or query.is_zero or query.blob is not None:
            raise ValueError("not a query that is measured by itself")
        return query

    def check(self, space: Space) -> None:
        """Raise ValueError unless it is a query of this graph or matrix."""
        if len(space.shape) != 2 or space.kind == "table":
            raise ValueError("a table is counted, not asked")
        self.query(space)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Asked) and (self.form, self.numbers) == (other.form, other.numbers)

    def __hash__(self) -> int:
        return hash((orjson.dumps(dict(self.form), option=orjson.OPT_SORT_KEYS), self.numbers))

    def tallies(self, space: Space) -> tuple[Tally, ...]:
        return self._query(space).tallies

    def exact_of(self, space: Space, told: Sequence[Any]) -> IntArray:
        """On the answer grid."""
        query = self._query(space)
        return np.atleast_1d(np.asarray(space.to_answer_grid(query.exact_of(told), query), np.int64))

    def _query(self, space: Space) -> Query:
        return self.query(space) if self.compiled is None else self.compiled

    def sensitivity(self, adjacency: Adjacency, bits: int) -> tuple[int, int]:
        """By how much the values of neighbours differ, in units of 2^-bits: in L1, and in the square of L2."""
        query, unit = self.compiled, 1 << bits
        assert query is not None, "a query that is measured is at hand"
        if isinstance(query, CompiledDegrees):
            gamma = adjacency.gamma
            return query.l1(gamma, adjacency.side) * unit, query.squared(gamma, adjacency.side) * unit**2
        # An entry is in one of the numbers, with a weight of 1 at most. What is finer than the grid is rounded to it.
        sensitivity = -(-adjacency.gamma * unit // (1 << adjacency.bits))
        return sensitivity, sensitivity**2

    def events(self, noise: Law, adjacency: Adjacency) -> Events:
        """All values together, each on the answer grid."""
        assert isinstance(noise, Noise)
        return ((answer(noise, *self.sensitivity(adjacency, noise.bits)), 1),)

    def describe(self, space: Space) -> dict[str, Any]:
        """Which kind of query."""
        return {"type": "query", "of": self.form["type"], "cells": self.numbers}

    def beside(self) -> dict[str, Any]:
        """The query in its canonical form; values are in the order of that."""
        return {"query": dict(self.form)}

    def document(self) -> dict[str, Any]:
        """As JSON."""
        return {"numbers": self.numbers, "query": dict(self.form)}

    @classmethod
    def read(cls, document: Mapping[str, Any]) -> Asked:
        """From JSON; whether it is a query of a space is told by :meth:`check`.

        Raises:
            KeyError, TypeError, ValueError: when it is none.
        """
        form, numbers = document["query"], document["numbers"]
        if not isinstance(form, Mapping) or type(numbers) is not int or numbers < 1:
            raise TypeError("a query asks for numbers")
        return cls(form, numbers)
