"""Elements of a multiset with their weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field, StrictStr

from app.spaces.counts import Entries, Tally
from app.spaces.errors import InvalidQuery
from app.spaces.multiset import MultisetSpace
from app.spaces.queries.canonical import within
from app.spaces.queries.forms import Form, Integers, Whole
from app.spaces.queries.linear import CompiledZero
from app.spaces.queries.request import Request, Weight, does_not_fit
from app.spaces.queries.weights import check_weights
from app.spaces.query import LinearQuery, Query
from app.spaces.rounding import on_grid
from app.spaces.space import Space
from app.spaces.tensor import FloatArray, IntArray, Tensor


class ElementsQuery(Request):
    """Weights of the named elements of a multiset; every other element weighs zero."""

    type: Literal["elements"]
    weights: dict[str, Weight] = Field(min_length=1)

    def compiled(self, space: Space) -> Query:
        if not isinstance(space, MultisetSpace):
            raise does_not_fit(self.type, space)
        elements = sorted(self.weights)
        weights = np.array([self.weights[element] for element in elements], dtype=np.float64)
        check_weights(weights)
        for element in elements:
            _check_text(element)
        bits = space.axis_bits(1)
        integers, rounding = on_grid(weights, bits)
        return _from_elements(space, elements, integers, bits, rounding)

    @classmethod
    def read(cls, space: Space, form: Mapping[str, Any]) -> Query | None:
        if not isinstance(space, MultisetSpace):
            return None
        said = _ElementsForm.read(form)
        elements, weights = said.elements, said.weights
        if (
            said.bits != space.axis_bits(1)
            or weights.shape != (len(elements),)
            or not within(weights, said.bits)
            or any(second <= first for first, second in pairwise(elements))
        ):
            raise InvalidQuery("canonical elements are out of order or out of range")
        return _from_elements(space, elements, weights, said.bits, 0.0)


class _ElementsForm(Form):
    elements: list[StrictStr]
    weights: Integers
    bits: Whole


@dataclass(frozen=True, eq=False)
class CompiledElements(LinearQuery):
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

    @property
    def tallies(self) -> tuple[Tally, ...]:
        return (Entries(self.positions),)

    def exact_of(self, told: Sequence[Any]) -> int:
        return int(told[0].astype(np.int64) @ self.weights)

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


def _from_elements(space: Space, elements: list[str], weights: IntArray, bits: int, rounding: float) -> Query:
    """The canonical query of ascending distinct elements and their integer weights."""
    kept = np.flatnonzero(weights)
    if not len(kept):
        return CompiledZero(space.shape, rounding)
    return CompiledElements(tuple(elements[i] for i in kept), weights[kept], bits, rounding)


def _check_text(element: str) -> None:
    """Refuse a string that is no text: one with half of a surrogate pair, which has no UTF-8 bytes."""
    try:
        element.encode()
    except UnicodeEncodeError:
        raise InvalidQuery("elements: half of a surrogate pair is no character") from None
