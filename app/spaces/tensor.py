"""Arrays that queries are contracted with: dense ones, and sums of rank-one terms.

A contraction takes one :class:`Axis` an axis (``None`` where the query does not name it, which weighs one) and
never builds the query's own array. On integer tensors the result is an exact Python ``int``; on floating-point
ones (hypotheses) it is a ``float``. Exactness of the integer path rests on a public bound that the space
enforces: capacity times the largest weight stays below 2^62, so no partial sum can leave 64 bits.
"""

from __future__ import annotations

import hashlib
import math
import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from app.spaces.lazy import lazy

Array = npt.NDArray[Any]
IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]
#: Distinct positions along an axis: a range, however long, else a sorted array.
Members = slice | IntArray

#: Elements a fused kernel handles at a time: three operands of this length stay in a core's first caches, and the
#: linear algebra library does not split so short a product over threads, which on a busy machine costs many times
#: what the product does.
CHUNK = 1 << 13
#: Cells of a block worked on at a time, where each part takes an index or several operations to select.
BLOCK = 1 << 16
#: A list of positions is marked along an axis of so many, or of as many times as it is long; else it is searched.
_MARKED, _SCATTERED = 1 << 16, 64


@dataclass(frozen=True, eq=False)
class Axis:
    """Weights along one axis: an index set (weights 0 and 1), or integers in units of 2^-bits.

    ``index`` is a slice where the set is contiguous, else a sorted array; it is all of the axis where
    ``weights`` is given.
    """

    length: int
    index: Members
    weights: IntArray | None = None
    bits: int = 0

    @lazy
    def count(self) -> int:
        """How many cells of the axis may weigh something."""
        return count_of(self.index)

    def members(self, part: slice) -> slice | IntArray:
        """Some of the cells that may weigh something, counted among these; ``part`` has both ends and no step."""
        if isinstance(self.index, slice):
            return slice(self.index.start + part.start, self.index.start + part.stop)
        return self.index[part]

    @lazy
    def real(self) -> FloatArray | None:
        """The weights as real numbers, exact in float64; None for an index set."""
        return None if self.weights is None else np.ldexp(self.weights.astype(np.float64), -self.bits)

    @lazy
    def range(self) -> tuple[float, float]:
        """Smallest and largest weight along the axis."""
        if self.real is not None:
            return float(self.real.min()), float(self.real.max())
        return (1.0 if self.count == self.length else 0.0), (1.0 if self.count else 0.0)

    @lazy
    def norm2sq(self) -> float:
        """Sum of squared weights."""
        return float(self.count) if self.real is None else float(self.real @ self.real)

    def at(self, positions: Array) -> Array:
        """The weights at some positions, in units as :meth:`vector` has them: for an index set whether each is in it.

        What is made is as large as the positions are many, and never as the axis is long, unless the axis is short
        beside its index set.
        """
        if self.weights is not None:
            return self.weights[positions]
        if isinstance(self.index, slice):
            return np.asarray((positions >= self.index.start) & (positions < self.index.stop))
        if self.length <= max(_MARKED, _SCATTERED * len(self.index)):
            return np.asarray(self._marks[positions])
        places = np.minimum(np.searchsorted(self.index, positions), len(self.index) - 1)
        return np.asarray(self.index[places] == positions)

    @lazy
    def _marks(self) -> Array:
        """Whether each position is in the index set."""
        marks = np.zeros(self.length, np.bool_)
        marks[self.index] = True
        return marks

    def vector(self) -> IntArray:
        """All weights along the axis in units of 2^-bits (an index set counts 1, whatever ``bits``)."""
        if self.weights is not None:
            return self.weights
        full = np.zeros(self.length, dtype=np.int64)
        full[self.index] = 1
        return full

    def real_vector(self) -> FloatArray:
        """All weights along the axis as real numbers."""
        if self.real is not None:
            return self.real
        full = np.zeros(self.length)
        full[self.index] = 1.0
        return full

    @lazy
    def places(self) -> IntArray:
        """The positions that weigh something, ascending."""
        if self.weights is not None:
            return np.flatnonzero(self.weights)
        return np.arange(self.index.start, self.index.stop) if isinstance(self.index, slice) else self.index

    @lazy
    def own(self) -> FloatArray:
        """The weights of the places."""
        return np.ones(len(self.places)) if self.real is None else self.real[self.places]

    @lazy
    def name(self) -> bytes:
        """A name that tells it from others: the same for the same places and weights."""
        told = hashlib.sha256(self.places.astype("<i8").tobytes())
        told.update(b"" if self.weights is None else b"/" + self.own.astype("<f8").tobytes())
        return told.digest()

    @lazy
    def total(self) -> float:
        """Sum of the weights."""
        return float(self.own.sum())

    @lazy
    def square(self) -> float:
        """Sum of their squares."""
        return float(self.own @ self.own)

    @lazy
    def parts(self) -> tuple[float, float]:
        """The sum of the negative weights and that of the positive ones."""
        return float(np.minimum(self.own, 0).sum()), float(np.maximum(self.own, 0).sum())

    def meeting(self, other: Axis) -> tuple[IntArray, FloatArray]:
        """The places that both may weigh, and the products of both weights."""
        if self is other:
            return self.places, self.own**2
        both, mine, others = np.intersect1d(self.places, other.places, assume_unique=True, return_indices=True)
        return both, self.own[mine] * other.own[others]

    def summed(self, values: FloatArray) -> FloatArray:
        """Values of all positions (the last axis of an array), weighed and summed."""
        found: FloatArray = values[..., self.places]
        # Of a set without a product: a library that begins threads for each makes them wait for one another.
        summed: FloatArray = found.sum(axis=-1) if self.weights is None else found @ self.own
        return summed


def along(vector: Array, axis: int, rank: int) -> Array:
    """A vector as an array of the given rank that varies along one axis."""
    return vector.reshape([-1 if k == axis else 1 for k in range(rank)])


def count_of(members: Members) -> int:
    """How many positions there are."""
    return max(0, int(members.stop - members.start)) if isinstance(members, slice) else len(members)


def meeting(first: Members, second: Members) -> Members:
    """The positions that are among both."""
    if isinstance(first, slice) and isinstance(second, slice):
        start = max(first.start, second.start)
        return slice(start, max(start, min(first.stop, second.stop)))
    if isinstance(first, slice):
        return meeting(second, first)
    if isinstance(second, slice):
        return first[np.searchsorted(first, second.start) : np.searchsorted(first, second.stop)]
    return np.intersect1d(first, second, assume_unique=True)


def listed_members(members: Members) -> IntArray:
    """Positions written out one by one."""
    return np.arange(members.start, members.stop) if isinstance(members, slice) else members


def index_set(length: int, members: Members) -> Members:
    """The sorted distinct ``members`` of an axis, as a slice where they are contiguous."""
    if isinstance(members, slice):
        return members
    if len(members) == 0:
        return slice(0, 0)
    first, last = int(members[0]), int(members[-1])
    if last - first + 1 == len(members):
        return slice(first, last + 1)
    return members


Axes = Sequence[Axis | None]
_ALL = slice(None)


class Tensor(Protocol):
    """An array that queries can be contracted with."""

    @property
    def shape(self) -> tuple[int, ...]: ...

    @property
    def diagonal(self) -> FloatArray | None:
        """The stored diagonal of a symmetric tensor where it is not zero: answers subtract its part."""

    def contract(self, axes: Axes) -> int | float:
        """Sum over all cells of entry times the product of the axes' integer weights.

        The result of an integer tensor is in units of the product of the axes' grids; that of a
        floating-point tensor is in real units.
        """

    def gather(self, positions: Array) -> Array:
        """Entries at row-major positions; of a multiset the counts of elements."""

    def inner(self, weights: Array, bits: int) -> int | float:
        """Sum of entry times weight over all cells; units as in :meth:`contract`."""


def chunks(size: int) -> Iterator[slice]:
    """Parts of a flat array that stay in the processor's caches."""
    return parts_of(size, CHUNK)


def parts_of(size: int, step: int) -> Iterator[slice]:
    """Ranges of so many places, each of ``step`` at most."""
    return (slice(start, min(start + step, size)) for start in range(0, size, step))


def _sums_in_parts(view: Array, axes: Axes, kind: Any) -> Array:
    """The sums over every axis without weights, within the lists of indices of some of them.

    The longest list is taken in parts: what they copy is small and stays in caches, and their sums add up.
    """
    summed = tuple([i for i, axis in enumerate(axes) if axis is None or axis.weights is None])
    lists = [(i, axis.index) for i, axis in enumerate(axes) if axis is not None and not isinstance(axis.index, slice)]
    longest, members = max(lists, key=lambda found: len(found[1]))
    step = max(1, BLOCK * view.shape[longest] // view.size)
    total: Any = 0
    for start in range(0, len(members), step):
        part = view.take(members[start : start + step], longest)
        for i, others in lists:
            if i != longest:
                part = part.take(others, i)
        total = total + np.add.reduce(part, summed, kind)
    return np.asarray(total, kind)


@dataclass(eq=False)
class DenseTensor:
    """An array in memory (or mapped), with a bounded store of its marginals.

    A query that names few axes is contracted with the marginal on those axes, computed once until the array
    changes. ``largest`` bounds a marginal that is worth keeping, the store holds at most a quarter of the
    array's own size (or 4 MiB).
    """

    array: Array
    wide: bool = False  # integer sums that could pass 2^53 must not take the float64 path
    _marginals: OrderedDict[tuple[int, ...], Array] = field(default_factory=OrderedDict, repr=False)
    _held: int = field(default=0, repr=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    diagonal: FloatArray | None = field(default=None, init=False)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(shape={self.shape})"

    @property
    def shape(self) -> tuple[int, ...]:
        return self.array.shape

    @property
    def nbytes(self) -> int:
        return self.array.nbytes + self._held

    @property
    def exact(self) -> bool:
        """Whether entries are integers."""
        return self.array.dtype.kind in "iu"

    def touch(self) -> None:
        """Forget the marginals: the array has changed."""
        with self._lock:
            self._marginals.clear()
            self._held = 0

    def marginal(self, axes: tuple[int, ...]) -> Array:
        """The sums over all axes but these, which ascend."""
        known = self._kept_marginal(axes)
        if known is not None:
            return known
        summed = tuple(i for i in range(self.array.ndim) if i not in axes)
        if not summed:
            return self.array
        result: Array = self.array.sum(axis=summed, dtype=np.int64 if self.exact else np.float64)
        return result

    def _kept_marginal(self, named: tuple[int, ...]) -> Array | None:
        """The sums over all axes but ``named``, or None when that array is too large to be worth having."""
        with self._lock:
            known = self._marginals.get(named)
            if known is not None:
                self._marginals.move_to_end(named)
                return known
            shape = self.array.shape
            cells = math.prod([shape[i] for i in named])
            limit = max(self.array.nbytes // 4, 1 << 22)
            # Sums take eight bytes each, however narrow the array's own numbers are.
            if cells > max(self.array.size // 8, 1 << 12) or 8 * cells > limit or len(named) == len(shape):
                return None
            source, axes = self.array, tuple(range(len(shape)))
            for other, held in self._marginals.items():
                if held.size < source.size and set(named) <= set(other):
                    source, axes = held, other
            summed = tuple(i for i, axis in enumerate(axes) if axis not in named)
            result: Array = source.sum(axis=summed, dtype=np.int64 if self.exact else np.float64)
            self._marginals[named] = result
            self._held += result.nbytes
            while self._held > limit and len(self._marginals) > 1:
                _, dropped = self._marginals.popitem(last=False)
                self._held -= dropped.nbytes
            return result

    def weighted_block(self, axes: Axes) -> Array:
        """The array summed over every axis but the weighted ones, within the index sets of the others."""
        named = tuple([i for i, axis in enumerate(axes) if axis is not None])
        view = self._kept_marginal(named)
        kept: Sequence[Axis | None] = axes if view is None else [axes[i] for i in named]
        if view is None:
            view = self.array
        # Slices are views and cost nothing: they come first, so that less is copied for the other index sets.
        view = view[tuple([a.index if a is not None and isinstance(a.index, slice) else _ALL for a in kept])]
        kind = np.int64 if self.exact else np.float64
        summed = []
        for i, axis in enumerate(kept):
            if axis is None or axis.weights is None:
                summed.append(i)
            if axis is not None and not isinstance(axis.index, slice):
                if view.size * len(axis.index) > BLOCK * view.shape[i]:
                    return _sums_in_parts(view, kept, kind)
                view = view.take(axis.index, i)
        if not summed:
            return view.astype(kind, copy=False)
        return np.asarray(np.add.reduce(view, tuple(summed), kind))

    def contract(self, axes: Axes) -> int | float:
        block = self.weighted_block(axes)
        if block.ndim:
            for axis in reversed([a for a in axes if a is not None and a.weights is not None]):
                block = block @ (axis.weights if self.exact else axis.real)
        return int(block) if self.exact else float(block)

    def gather(self, positions: IntArray) -> Array:
        return self.array.reshape(-1)[positions]

    def inner(self, weights: Array, bits: int) -> int | float:
        entries, flat = self.array.reshape(-1), weights.reshape(-1)
        if self.exact and self.wide:
            total = 0
            for part in chunks(flat.size):
                total += int(entries[part].astype(np.int64) @ flat[part].astype(np.int64))
            return total
        # Chunks keep the conversions in cache. Integers below 2^53 make every partial float64 sum exact.
        partial = 0.0
        for part in chunks(flat.size):
            partial += float(entries[part].astype(np.float64, copy=False) @ flat[part].astype(np.float64, copy=False))
        return int(partial) if self.exact else float(np.ldexp(partial, -bits))


class LowRankTensor:
    """A floating-point matrix held as a sum of signed rank-one terms ``c_k u_k v_k'``.

    Adding a term copies two vectors; a contraction with a cut or rank-one query costs terms times nodes. For
    an undirected graph the sum may have a diagonal, which is no part of the universe: it is tracked, so that
    answers can subtract its part.
    """

    def __init__(self, shape: tuple[int, int], *, symmetric: bool) -> None:
        self.shape: tuple[int, ...] = shape
        self.terms = 0
        self.diagonal: FloatArray | None = np.zeros(shape[0]) if symmetric else None
        self._c = np.zeros(8)
        self._u = np.zeros((8, shape[0]))
        self._v = np.zeros((8, shape[1]))

    def __repr__(self) -> str:
        return f"LowRankTensor(shape={self.shape}, terms={self.terms})"

    def add(self, scale: float, left: FloatArray, right: FloatArray) -> None:
        """Add ``scale * left right'``."""
        if self.terms == len(self._c):
            self._grow()
        self._c[self.terms], self._u[self.terms], self._v[self.terms] = scale, left, right
        self.terms += 1
        if self.diagonal is not None:
            self.diagonal += scale * left * right

    @property
    def factors(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        """c, u and v of all terms, one row a term."""
        k = self.terms
        return self._c[:k], self._u[:k], self._v[:k]

    @classmethod
    def of(cls, factors: tuple[FloatArray, FloatArray, FloatArray], *, diagonal: FloatArray | None) -> LowRankTensor:
        """The sum of these terms, ``diagonal`` being what is tracked of it where the graph is undirected."""
        c, u, v = factors
        made = cls((u.shape[1], v.shape[1]), symmetric=False)
        while len(made._c) < len(c):
            made._grow()
        made.terms, made.diagonal = len(c), diagonal
        made._c[: len(c)], made._u[: len(c)], made._v[: len(c)] = c, u, v
        return made

    def _grow(self) -> None:
        self._c, self._u, self._v = (np.concatenate([a, np.zeros_like(a)]) for a in (self._c, self._u, self._v))

    @property
    def dense_is_cheaper(self) -> bool:
        """Whether the matrix would hold fewer numbers than the terms do."""
        rows, columns = self.shape
        return self.terms * (rows + columns) > rows * columns

    @staticmethod
    def _along(factors: FloatArray, axis: Axis | None) -> FloatArray:
        if axis is None:
            sums: FloatArray = factors.sum(axis=1)
        elif axis.real is not None:
            sums = factors @ axis.real
        elif isinstance(axis.index, slice):
            sums = factors[:, axis.index].sum(axis=1)
        else:
            sums = factors @ axis.real_vector()
        return sums

    def contract(self, axes: Axes) -> int | float:
        k = self.terms
        left, right = axes
        return float(self._c[:k] @ (self._along(self._u[:k], left) * self._along(self._v[:k], right)))

    def gather(self, positions: IntArray) -> Array:
        rows, columns = np.divmod(positions, self.shape[1])
        k = self.terms
        entries: FloatArray = np.einsum("k,kn,kn->n", self._c[:k], self._u[:k, rows], self._v[:k, columns])
        return entries

    def inner(self, weights: Array, bits: int) -> int | float:
        matrix = np.ldexp(weights.reshape(self.shape).astype(np.float64), -bits)
        k = self.terms
        return float(np.einsum("kj,kj->", self._u[:k] @ matrix, self._c[:k, None] * self._v[:k]))

    def dense(self) -> FloatArray:
        """The matrix itself, its diagonal zero where the graph is undirected."""
        k = self.terms
        matrix = (self._u[:k].T * self._c[:k]) @ self._v[:k]
        if self.diagonal is not None:
            np.fill_diagonal(matrix, 0.0)
        return matrix
