"""Multisets of strings: an unbounded universe, so there are no arrays; queries weigh the few elements they name.

An element is a string of any length, compared by its Unicode code points without normalisation; elements that the data
does not hold count 0. Everything that is said of other spaces' cells holds with "positions" read as elements.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from app.declarations.spec import DEFAULT_CAPACITY, MultisetSpec
from app.spaces.canonical import within
from app.spaces.compilation import check_weights
from app.spaces.errors import InvalidQuery
from app.spaces.query import Blobs, CompiledZero, Query
from app.spaces.query_request import ElementsQuery, MarginalQuery, QueryRequest
from app.spaces.rounding import on_grid
from app.spaces.space import Extent, Space
from app.spaces.tensor import Array, Axes, FloatArray, IntArray, Tensor


class ElementCounts(Protocol):
    """A private multiset: how often each of some elements occurs, and how many there are in all."""

    @property
    def mass(self) -> int: ...

    @property
    def nbytes(self) -> int: ...

    def lookup(self, elements: Iterable[str]) -> IntArray:
        """The counts of elements in their order, 0 where absent."""


@dataclass(frozen=True, eq=False)
class ElementsTensor:
    """A private multiset, ready for exact contraction. It has no axes: its only contraction is its mass."""

    counts: ElementCounts

    def __repr__(self) -> str:
        return "ElementsTensor()"

    @property
    def shape(self) -> tuple[int, ...]:
        return ()

    @property
    def nbytes(self) -> int:
        return self.counts.nbytes

    @property
    def diagonal(self) -> None:
        return None

    def contract(self, axes: Axes) -> int:
        assert not axes
        return self.counts.mass

    def marginal(self, axes: tuple[int, ...]) -> Array:
        """The mass: there are no axes."""
        return np.asarray(self.contract(()))

    def gather(self, positions: Array) -> Array:
        return self.counts.lookup(positions)

    def inner(self, weights: Array, bits: int) -> int:
        raise TypeError("an unbounded universe has no array of weights")


@dataclass(frozen=True, eq=False)
class CompiledElements(Query):
    """Weights of distinct elements, ascending by code points (which is the order of their UTF-8 bytes).

    Hypotheses are asked for the elements' counts as others are for cells'; there is no dense form of either.
    """

    elements: tuple[str, ...]
    weights: IntArray
    grid_bits: int
    rounding: float

    @cached_property
    def positions(self) -> npt.NDArray[np.object_]:
        """The elements as an array, as a tensor's ``gather`` takes them."""
        return np.array(self.elements, dtype=object)

    @cached_property
    def real(self) -> FloatArray:
        """The weights as real numbers, exact in float64."""
        return np.ldexp(self.weights.astype(np.float64), -self.grid_bits)

    def exact(self, data: Tensor) -> int:
        return int(data.gather(self.positions).astype(np.int64) @ self.weights)

    def inner(self, hypothesis: Tensor) -> float:
        return float(hypothesis.gather(self.positions) @ self.real)

    @property
    def range(self) -> tuple[float, float]:
        # There is always an element that the query does not name.
        return min(float(self.real.min()), 0.0), max(float(self.real.max()), 0.0)

    @property
    def norm2sq(self) -> float:
        return float(self.real @ self.real)

    @cached_property
    def canonical(self) -> dict[str, Any]:
        return {
            "bits": self.grid_bits,
            "elements": list(self.elements),
            "type": "elements",
            "weights": self.weights.tolist(),
        }


@dataclass(frozen=True)
class MultisetSpace(Space):
    """The universe of all strings; neighbours differ in one occurrence of one element."""

    @property
    def extent(self) -> Extent:
        return "unbounded"

    def compile(self, request: QueryRequest) -> Query:
        if isinstance(request, MarginalQuery):
            raise InvalidQuery("marginals are of the attributes of a table, and this is a multiset data set")
        if not isinstance(request, ElementsQuery):
            raise InvalidQuery(f"a {request.type} query does not fit a multiset: name elements with their weights")
        elements = sorted(request.weights)
        weights = np.array([request.weights[element] for element in elements], dtype=np.float64)
        check_weights(weights)
        for element in elements:
            _check_text(element)
        bits = self.axis_bits(1)
        integers, rounding = on_grid(weights, bits)
        return self._from_elements(elements, integers, bits, rounding)

    def compile_dense(self, weights: Array) -> Query:
        raise InvalidQuery("a dense query does not fit a multiset: name elements with their weights")

    def _from_elements(self, elements: list[str], weights: IntArray, bits: int, rounding: float) -> Query:
        """The canonical query of ascending distinct elements and their integer weights."""
        kept = np.flatnonzero(weights)
        if not len(kept):
            return CompiledZero(self.shape, rounding)
        return CompiledElements(tuple(elements[i] for i in kept), weights[kept], bits, rounding)

    def _read_canonical(self, form: Mapping[str, Any], blobs: Blobs) -> Query:
        if form["type"] == "zero":
            return CompiledZero(self.shape)
        elements, weights = form["elements"], np.array(form["weights"], dtype=np.int64)
        if (
            form["type"] != "elements"
            or form["bits"] != self.axis_bits(1)
            or weights.shape != (len(elements),)
            or not within(weights, form["bits"])
            or any(not isinstance(element, str) for element in elements)
            or any(second <= first for first, second in pairwise(elements))
        ):
            raise InvalidQuery("canonical elements are out of order or out of range")
        return self._from_elements(elements, weights, form["bits"], 0.0)


def _check_text(element: str) -> None:
    """Refuse a string that is no text: one with half of a surrogate pair, which has no UTF-8 bytes."""
    try:
        element.encode()
    except UnicodeEncodeError:
        raise InvalidQuery("elements: half of a surrogate pair is no character") from None


def multiset_space(spec: MultisetSpec) -> MultisetSpace:
    """The space of a declared multiset."""
    return MultisetSpace(kind="multiset", shape=(), names=(), capacity=spec.capacity or DEFAULT_CAPACITY)
