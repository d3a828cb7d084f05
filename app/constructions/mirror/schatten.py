"""The Schatten p potential on matrices, kept as a small core in orthonormal bases while its rank is small."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from weakref import WeakKeyDictionary

import numpy as np

from app.constructions.base import PARTS_BYTES
from app.constructions.dense import matrix_of
from app.constructions.dumps import Dump
from app.constructions.mirror.form import Form, Path, Terms, lp_norm, touched
from app.geometry.norms import FloatArray, vector_norm
from app.geometry.potentials import SpectralLine, link_magnitudes
from app.geometry.projections import magnitudes_onto_ball
from app.geometry.spectral import NEGLIGIBLE, Basis, Factors, factors, padded, split
from app.spaces.queries.linear import CompiledDense, CompiledPair, CompiledProduct, CompiledSparse
from app.spaces.query import LinearQuery
from app.spaces.tensor import Array, Axes, Axis, DenseTensor, IntArray

#: A query that is no product is learnt as rank-one terms where there are at most so many, as a part of the smaller
#: side: with more of them whole matrices are the faster way.
_FEW = 0.25
#: Matrices of float64 that an update takes at most where it decomposes whole ones: factors, and what the decomposition
#: works in, which NumPy takes outside of its own accounts (12.4 to 13.4 were measured, at 600 by 600).
_DECOMPOSED = 16


@dataclass
class CoreTensor:
    """The matrix ``U core V'``, ready to be contracted with any query; costs nodes times rank."""

    left: Basis
    right: Basis
    core: FloatArray
    diagonal: FloatArray | None = field(default=None, init=False)

    @property
    def shape(self) -> tuple[int, ...]:
        """Rows and columns of the matrix."""
        return len(self.left.vectors), len(self.right.vectors)

    @staticmethod
    def _along(basis: Basis, axis: Axis | None) -> FloatArray:
        if axis is None:
            sums: FloatArray = basis.vectors.sum(axis=0)
        elif axis.real is None:
            sums = basis.vectors[axis.index].sum(axis=0)
        else:
            sums = basis.coordinates(axis.real)
        return sums

    def contract(self, axes: Axes) -> float:
        """``u' U core V' v`` for the weights u, v of the two axes."""
        return float(self._along(self.left, axes[0]) @ self.core @ self._along(self.right, axes[1]))

    def gather(self, flat: IntArray) -> Array:
        """Entries at row-major positions."""
        rows, columns = np.divmod(flat, self.shape[1])
        entries: FloatArray = np.einsum("nk,nk->n", self.left.vectors[rows] @ self.core, self.right.vectors[columns])
        return entries

    def inner(self, weights: Array, bits: int) -> float:
        """The sum of entry times weight, weights in units of 2^-bits."""
        matrix = np.ldexp(weights.reshape(self.shape).astype(np.float64), -bits)
        return float(((matrix @ self.right.vectors) * (self.left.vectors @ self.core)).sum())

    def dense(self) -> FloatArray:
        """The matrix itself."""
        result: FloatArray = self.left.vectors @ self.core @ self.right.vectors.T
        return result


@dataclass
class SchattenState:
    """theta and the hypothesis: cores in common bases, or, once the rank is full, matrices."""

    theta: FloatArray
    tensor: CoreTensor | DenseTensor


@dataclass(frozen=True)
class SchattenForm(Form):
    """JT12's potential ``||Z||_{S_p}^2/(p-1)``, section 4.2.

    theta is a sum of few rank-one terms while the queries learnt are: ``theta = U K V'`` with a k by k core K, and the
    hypothesis ``U H V'`` has the same bases. Singular values are those of the core, so an update costs nodes times k
    and some decompositions of k by k, an answer nodes times k. When k is near the smaller side, or a query is learnt
    that has too many terms, both become matrices.

    A product is one term, a pair query three, a sparse query as many as it has rows (or columns, if fewer). A dense
    query has as many as its singular values that the rounding of weights to their grid does not drown: of real weights
    of low rank the rounding alone makes a matrix of full rank. What is learnt is then not quite the
    query; :meth:`approximate` measures by how much, and chooses the query itself where the bound on updates would
    suffer.

    The data of an undirected graph is the full symmetric matrix X, and a pair query is ``(s t' + t s' - w w')/2``
    with whatever stands on its diagonal: X has zeros there, so ``<f, x>`` is the same, and the hypothesis, which has
    not, is asked with the same matrix as it was taught with.
    """

    #: Factors of the queries in use: they are asked for several times an update.
    _known: WeakKeyDictionary[LinearQuery, Factors | None] = field(
        default_factory=WeakKeyDictionary, init=False, repr=False, compare=False
    )

    def nbytes(self, updates: int) -> int:
        # Whatever was learnt so far, the next queries may have any rank.
        return 2 * self.space.dense_bytes

    def working_bytes(self, state: SchattenState, query: LinearQuery) -> int:
        known = self._factors(query)
        if isinstance(state.tensor, DenseTensor) or known is None or self._is_full(state.tensor, known.rank):
            return _DECOMPOSED * self.space.dense_bytes + PARTS_BYTES
        rank = max(state.tensor.left.size, state.tensor.right.size) + known.rank
        # Bases grow by doubling, and are copied as they do. Dense weights are spelled to be asked.
        spelled = 3 * self.space.dense_bytes if isinstance(query, CompiledDense) else 0
        return 8 * (_DECOMPOSED * rank**2 + 4 * rank * sum(self.space.shape)) + spelled + PARTS_BYTES

    def count(self) -> int:
        return min(self.space.shape)

    @property
    def _half(self) -> float:
        return 0.5 if self.space.symmetric else 1.0

    def start(self) -> SchattenState:
        rows, columns = self.space.shape
        empty = np.zeros((0, 0))
        return SchattenState(empty, CoreTensor(Basis(rows), Basis(columns), empty))

    def dump(self, state: SchattenState) -> Dump:
        theta, tensor = state.theta, state.tensor
        if isinstance(tensor, DenseTensor):
            return Dump({"theta": theta, "cells": tensor.array})
        return Dump({"theta": theta, "core": tensor.core, "left": tensor.left.vectors, "right": tensor.right.vectors})

    def load(self, dump: Dump) -> SchattenState:
        arrays = dump.arrays
        if "cells" in arrays:
            return SchattenState(arrays["theta"], DenseTensor(arrays["cells"]))
        left, right = Basis.of(arrays["left"]), Basis.of(arrays["right"])
        return SchattenState(arrays["theta"], CoreTensor(left, right, arrays["core"]))

    def answer(self, state: SchattenState, query: LinearQuery) -> float:
        return query.inner(state.tensor)

    def _factors(self, query: LinearQuery) -> Factors | None:
        """The part of a query that the form learns, as rank-one terms; None where there are too many."""
        if isinstance(query, CompiledProduct):
            left, right = (
                np.ones(length) if axis is None else axis.real_vector()
                for axis, length in zip(query.axes, self.space.shape, strict=True)
            )
            return Factors(left[:, None], right[:, None])
        if isinstance(query, CompiledPair):
            left, right, both = (axis.real_vector() for axis in (query.left, query.right, query.both))
            terms = [(left, right), (right, left)] + ([(-both, both)] if both.any() else [])
            return Factors(0.5 * np.stack([u for u, _ in terms], axis=1), np.stack([v for _, v in terms], axis=1))
        if query not in self._known:
            self._known[query] = self._found(query)
        return self._known[query]

    def _found(self, query: LinearQuery) -> Factors | None:
        most = int(_FEW * min(self.space.shape))
        if not isinstance(query, CompiledSparse):
            unit = self._half * 2.0**-query.grid_bits
            return factors(self._matrix(query), unit / 2, most) if most else None
        # A row, or a column, is a term.
        cells, weights = touched(query, self.space.shape)
        along, across = (np.unique(side, return_inverse=True) for side in cells)
        swapped = len(across[0]) < len(along[0])
        if swapped:
            along, across = across, along
        if len(along[0]) > most:
            return None
        units, entries = (np.zeros((n, len(along[0]))) for n in self.space.shape[:: -1 if swapped else 1])
        units[along[0], np.arange(len(along[0]))] = self._half
        entries[across[0][across[1]], along[1]] = weights
        return Factors(entries, units) if swapped else Factors(units, entries)

    def _matrix(self, query: LinearQuery) -> FloatArray:
        """The query as the form sees it, whole."""
        if isinstance(query, CompiledProduct | CompiledPair):
            known = self._factors(query)
            assert known is not None
            return known.dense()
        matrix = matrix_of(query, self.space.shape)
        matrix *= self._half
        return matrix

    def approximate(self, state: SchattenState, query: LinearQuery, room: float) -> float:
        tensor, known = state.tensor, self._factors(query)
        if isinstance(tensor, DenseTensor) or known is None or self._is_full(tensor, known.rank):
            return 0.0
        if known.largest <= NEGLIGIBLE:
            return 0.0
        # <f, x> by the data's mass, which stands twice where the matrix does; <f, h> as it is.
        mass = float(self.space.capacity) / self._half
        learnt = (known.left.T @ tensor.left.vectors) @ tensor.core * (known.right.T @ tensor.right.vectors)
        off = known.largest * mass + abs(self.answer(state, query) - float(learnt.sum()))
        if off <= room:
            return off
        self._as_matrices(state)
        return 0.0

    def inner(self, left: LinearQuery, right: LinearQuery) -> float:
        mine, other = self._factors(left), self._factors(right)
        if mine is None or other is None:
            return float(np.vdot(self._matrix(left), self._matrix(right)))
        return float(np.vdot(mine.left.T @ other.left, mine.right.T @ other.right))

    def zeta(self, query: LinearQuery) -> float:
        if isinstance(query, CompiledProduct):
            return lp_norm(query, 2, self.space.shape, 1)
        known = self._factors(query)
        if known is None:
            return vector_norm(np.linalg.svd(self._matrix(query), compute_uv=False), self.q)
        # The singular values of A B' are those of R_A R_B'. What is not learnt adds its own norm at most.
        core = _triangle(known.left) @ _triangle(known.right).T
        return vector_norm(np.linalg.svd(core, compute_uv=False), self.q) + known.length

    def largest_zeta(self) -> float:
        # The Frobenius norm, which a matrix of rank one attains whatever q.
        rows, columns = self.space.shape
        return float(self._half * (rows * columns) ** 0.5)

    def _core(self, tensor: CoreTensor, known: Factors) -> FloatArray:
        """The terms in the bases, which grow as needed."""
        left, right = (
            [basis.include(vector) for vector in side.T]
            for basis, side in ((tensor.left, known.left), (tensor.right, known.right))
        )
        core: FloatArray = _stacked(left, tensor.left.size) @ _stacked(right, tensor.right.size).T
        return core

    def _is_full(self, tensor: CoreTensor, more: int) -> bool:
        return max(tensor.left.size, tensor.right.size) + more >= min(self.space.shape)

    def _as_matrices(self, state: SchattenState) -> None:
        """Leave the bases."""
        tensor = state.tensor
        assert isinstance(tensor, CoreTensor)
        theta = CoreTensor(tensor.left, tensor.right, state.theta)
        state.theta, state.tensor = theta.dense(), DenseTensor(tensor.dense())

    def _direction(self, state: SchattenState, query: LinearQuery) -> FloatArray:
        """The query beside theta, in the bases (which theta and the hypothesis then share) or as a matrix."""
        tensor = state.tensor
        if isinstance(tensor, CoreTensor):
            known = self._factors(query)
            if known is not None and not self._is_full(tensor, known.rank):
                direction = self._core(tensor, known)
                state.theta = padded(state.theta, *direction.shape)
                tensor.core = padded(tensor.core, *direction.shape)
                return direction
            self._as_matrices(state)
        return self._matrix(query)

    def path(self, state: SchattenState, query: LinearQuery, scale: float) -> Path:
        direction = self._direction(state, query)
        line = SpectralLine(state.theta, direction, self.p)
        return Path(line, (line, direction))

    def move(self, state: SchattenState, path: Path, rate: float) -> None:
        line, direction = path.moves
        h = line.inverse(rate)
        state.theta = state.theta + rate * direction
        self._show(state, h)

    def _show(self, state: SchattenState, h: FloatArray) -> None:
        if isinstance(state.tensor, CoreTensor):
            state.tensor.core = h
        else:
            state.tensor.array = h
            state.tensor.touch()

    def _hypothesis(self, state: SchattenState) -> FloatArray:
        return state.tensor.core if isinstance(state.tensor, CoreTensor) else state.tensor.array

    def add(self, state: SchattenState, terms: Terms) -> None:
        for coefficient, query in terms:
            direction = self._direction(state, query)
            self._show(state, self._hypothesis(state) + coefficient * direction)
        values, rebuild = split(self._hypothesis(state))
        state.theta = rebuild(link_magnitudes(values, self.p))

    def confine(self, state: SchattenState, ball_p: float, radius: float) -> None:
        h = self._hypothesis(state)
        if ball_p == self.p:
            # <theta, h> is twice the potential, so the norm needs no singular values; the link takes factors along.
            norm = math.sqrt((self.p - 1) / 2 * max(float(np.vdot(state.theta, h)), 0.0))
            if norm > radius:
                state.theta = state.theta * (radius / norm)
                self._show(state, h * (radius / norm))
        elif h.size:
            magnitudes, rebuild = split(h)
            confined = magnitudes_onto_ball(magnitudes, self.p, ball_p, radius)
            if confined is not magnitudes:
                state.theta = rebuild(link_magnitudes(confined, self.p))
                self._show(state, rebuild(confined))

    def dense(self, state: SchattenState) -> FloatArray:
        result = state.tensor.dense() if isinstance(state.tensor, CoreTensor) else state.tensor.array.copy()
        if self.space.symmetric:
            # What stands on the diagonal is no part of the universe.
            np.fill_diagonal(result, 0.0)
        return result


def _triangle(matrix: FloatArray) -> FloatArray:
    """R of the QR decomposition."""
    return np.asarray(np.linalg.qr(matrix)[1], dtype=np.float64)


def _stacked(columns: list[FloatArray], rows: int) -> FloatArray:
    """Columns that grew longer one after the other, zeros below them."""
    result = np.zeros((rows, len(columns)))
    for number, column in enumerate(columns):
        result[: len(column), number] = column
    return result
