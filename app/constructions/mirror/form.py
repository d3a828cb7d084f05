"""The common parts of the forms of mirror descent, and the cells that a query touches."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from app.constructions.base import PARTS_BYTES
from app.constructions.dense import matrix_of
from app.constructions.dumps import Dump
from app.geometry.norms import conjugate, vector_norm
from app.geometry.potentials import Line
from app.spaces.queries.linear import CompiledProduct, CompiledSparse
from app.spaces.query import LinearQuery
from app.spaces.space import Space
from app.spaces.tensor import Axis, FloatArray

#: psi = sum of coefficient times query, added to a hypothesis.
Terms = Sequence[tuple[float, LinearQuery]]


@dataclass(frozen=True)
class Path:
    """The line along a query, with what the form needs to move there."""

    line: Line
    moves: Any


@dataclass(frozen=True)
class Form(ABC):
    """A squared-norm potential of exponent p on a space.

    ``mu`` is 2 throughout. A form whose arrays spell more than the universe (both halves of a symmetric matrix)
    scales the query instead, so that its inner products are those of the universe.
    """

    space: Space
    p: float

    @property
    def q(self) -> float:
        """Exponent of the dual norm."""
        return conjugate(self.p)

    @abstractmethod
    def nbytes(self, updates: int) -> int:
        """About how many bytes a state takes after so many updates."""

    def working_bytes(self, state: Any, query: LinearQuery) -> int:
        """See :meth:`app.constructions.base.Construction.working_bytes`."""
        return 2 * self.space.dense_bytes + PARTS_BYTES

    @abstractmethod
    def count(self) -> int:
        """How many magnitudes the norm is taken of."""

    @abstractmethod
    def start(self) -> Any:
        """The zero hypothesis."""

    @abstractmethod
    def dump(self, state: Any) -> Dump:
        """The state in numbers."""

    @abstractmethod
    def load(self, dump: Dump) -> Any:
        """The state that :meth:`dump` wrote."""

    @abstractmethod
    def answer(self, state: Any, query: LinearQuery) -> float:
        """<f, h> in counts."""

    @abstractmethod
    def inner(self, left: LinearQuery, right: LinearQuery) -> float:
        """<f, g> of two queries, as the form sees them."""

    @abstractmethod
    def zeta(self, query: LinearQuery) -> float:
        """The query's dual norm."""

    @abstractmethod
    def largest_zeta(self) -> float:
        """An upper bound on the dual norm of every query with weights in [-1, 1]."""

    def approximate(self, state: Any, query: LinearQuery, room: float) -> float:
        """Choose what is learnt for a query: itself (always, unless overridden), or what is near it and cheaper.

        Returns:
            How far, in counts, the answers of what is learnt may be from the query's own, on the data and on the
            hypothesis together. At most ``room``, and 0 where it is the query itself.
        """
        return 0.0

    @abstractmethod
    def path(self, state: Any, query: LinearQuery, scale: float) -> Path:
        """The line along a query; ``scale`` is the order of its rates, for a state that is still zero."""

    @abstractmethod
    def move(self, state: Any, path: Path, rate: float) -> None:
        """theta <- theta + rate f, in place; the path must be the state's latest."""

    @abstractmethod
    def add(self, state: Any, terms: Terms) -> None:
        """h <- h + sum of terms, theta its link, in place."""

    @abstractmethod
    def confine(self, state: Any, ball_p: float, radius: float) -> None:
        """Bregman projection on ``{||z||_ball_p <= radius}``, in place."""

    @abstractmethod
    def dense(self, state: Any) -> FloatArray:
        """The hypothesis as an array of the space's shape."""


def _block(axes: Sequence[Axis | None], shape: tuple[int, ...]) -> tuple[tuple[Any, ...], FloatArray]:
    """The index of the cells of a product query, and its weights there, of a shape that broadcasts."""
    parts: list[Any] = [slice(None) if axis is None else axis.index for axis in axes]
    if sum(not isinstance(part, slice) for part in parts) > 1:
        # Several index arrays would be paired up; spelled as an open mesh they select the block.
        parts = list(np.ix_(*(np.arange(length)[part] for part, length in zip(parts, shape, strict=True))))
    weights = np.ones((1,) * len(axes))
    for i, axis in enumerate(axes):
        if axis is not None and axis.real is not None:
            weights = weights * axis.real.reshape([-1 if j == i else 1 for j in range(len(axes))])
    return tuple(parts), weights


def touched(query: LinearQuery, shape: tuple[int, ...]) -> tuple[tuple[Any, ...], FloatArray]:
    """An index of the cells that may weigh something, and weights that broadcast over them.

    Of an undirected graph both halves of the symmetric matrix are selected. Cells that lists name are copied when
    they are worked on, so where these are more than half of all, all are selected.
    """
    if isinstance(query, CompiledProduct):
        index, weights = _block(query.axes, shape)
        named = math.prod(n if axis is None else axis.count for n, axis in zip(shape, query.axes, strict=True))
        if 2 * named <= math.prod(shape) or all(isinstance(part, slice) for part in index):
            return index, weights
    if isinstance(query, CompiledSparse):
        positions = np.unravel_index(query.positions, shape)
        weights = np.ldexp(query.weights.astype(np.float64), -query.grid_bits)
        if not query.symmetric:
            return positions, weights
        rows, columns = positions
        both = np.concatenate([rows, columns]), np.concatenate([columns, rows])
        return both, np.concatenate([weights, weights])
    return (slice(None),) * len(shape), matrix_of(query, shape)


def lp_norm(query: LinearQuery, q: float, shape: tuple[int, ...], copies: int) -> float:
    """``(sum |f_i|^q)^(1/q)`` over the universe."""
    if isinstance(query, CompiledProduct):
        norm = 1.0
        for axis, length in zip(query.axes, shape, strict=True):
            if axis is None or axis.real is None:
                norm *= float(length if axis is None else axis.count) ** (1 / q)
            else:
                norm *= vector_norm(axis.real, q)
        return norm
    return vector_norm(touched(query, shape)[1], q, copies)
