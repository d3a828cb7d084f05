"""The Schatten p potential on matrices, kept as a small core in orthonormal bases while its rank is small."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from app.constructions.dumps import Dump
from app.constructions.mirror.form import Form, Path, Terms, lp_norm, matrix_of
from app.geometry.norms import FloatArray, vector_norm
from app.geometry.potentials import Schatten, spectral_line
from app.geometry.projections import onto_ball
from app.geometry.spectral import Basis, padded
from app.spaces.query import PairQuery, ProductQuery, Query
from app.spaces.tensor import Array, Axes, Axis, DenseTensor, IntArray

#: A matrix as a sum of ``scale * left right'``.
RankOnes = list[tuple[float, FloatArray, FloatArray]]


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

    theta is a sum of few rank-one terms while the queries learnt are products (a pair query is three):
    ``theta = U K V'`` with a k by k core K, and the hypothesis ``U H V'`` has the same bases. Singular values are
    those of the core, so an update costs nodes times k and some decompositions of k by k, an answer nodes times k.
    When k reaches the smaller side, or a query of another shape is learnt, both become matrices.

    The data of an undirected graph is the full symmetric matrix X, and a pair query is ``(s t' + t s' - w w')/2``
    with whatever stands on its diagonal: X has zeros there, so ``<f, x>`` is the same, and the hypothesis, which has
    not, is asked with the same matrix as it was taught with.
    """

    def nbytes(self, updates: int) -> int:
        rows, columns = self.space.shape
        rank = min(3 * updates + 8, rows, columns)
        return min(8 * (2 * rank * (rows + columns) + 2 * rank * rank), 2 * self.space.dense_bytes)

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

    def answer(self, state: SchattenState, query: Query) -> float:
        return query.inner(state.tensor)

    def _terms(self, query: Query) -> RankOnes | None:
        """A query as rank-one terms, or None where it is of another shape."""
        if isinstance(query, ProductQuery):
            left, right = (
                np.ones(length) if axis is None else axis.real_vector()
                for axis, length in zip(query.axes, self.space.shape, strict=True)
            )
            return [(1.0, left, right)]
        if isinstance(query, PairQuery):
            left, right, both = (axis.real_vector() for axis in (query.left, query.right, query.both))
            terms = [(0.5, left, right), (0.5, right, left)]
            return [*terms, (-0.5, both, both)] if both.any() else terms
        return None

    def _matrix(self, query: Query) -> FloatArray:
        """The query as the form sees it."""
        terms = self._terms(query)
        if terms is None:
            return self._half * matrix_of(query, self.space.shape)
        result = np.zeros(self.space.shape)
        for scale, left, right in terms:
            result += scale * np.outer(left, right)
        return result

    def inner(self, left: Query, right: Query) -> float:
        mine, other = self._terms(left), self._terms(right)
        if mine is None or other is None:
            return float((self._matrix(left) * self._matrix(right)).sum())
        return sum(a * b * float(u @ s) * float(v @ t) for a, u, v in mine for b, s, t in other)

    def zeta(self, query: Query) -> float:
        if isinstance(query, ProductQuery):
            return lp_norm(query, 2, self.space.shape, 1)
        terms = self._terms(query)
        if terms is None:
            return vector_norm(np.linalg.svd(self._matrix(query), compute_uv=False), self.q)
        # The singular values of sum c u v' = A C B' are those of R_A C R_B'.
        scales, lefts, rights = zip(*terms, strict=True)
        left, right = (_triangle(np.stack(side, axis=1)) for side in (lefts, rights))
        core = (left * np.array(scales)) @ right.T
        return vector_norm(np.linalg.svd(core, compute_uv=False), self.q)

    def largest_zeta(self) -> float:
        # The Frobenius norm, which a matrix of rank one attains whatever q.
        rows, columns = self.space.shape
        return float(self._half * (rows * columns) ** 0.5)

    def _core(self, tensor: CoreTensor, terms: RankOnes) -> FloatArray:
        """The terms in the bases, which grow as needed."""
        parts = [(scale, tensor.left.include(left), tensor.right.include(right)) for scale, left, right in terms]
        core = np.zeros((tensor.left.size, tensor.right.size))
        for scale, u, v in parts:
            core[: len(u), : len(v)] += scale * np.outer(u, v)
        return core

    def _is_full(self, tensor: CoreTensor, more: int) -> bool:
        return max(tensor.left.size, tensor.right.size) + more >= min(self.space.shape)

    def _as_matrices(self, state: SchattenState) -> None:
        """Leave the bases."""
        tensor = state.tensor
        assert isinstance(tensor, CoreTensor)
        theta = CoreTensor(tensor.left, tensor.right, state.theta)
        state.theta, state.tensor = theta.dense(), DenseTensor(tensor.dense())

    def _direction(self, state: SchattenState, query: Query) -> FloatArray:
        """The query beside theta, in the bases (which theta and the hypothesis then share) or as a matrix."""
        tensor = state.tensor
        if isinstance(tensor, CoreTensor):
            terms = self._terms(query)
            if terms is not None and not self._is_full(tensor, len(terms)):
                direction = self._core(tensor, terms)
                state.theta = padded(state.theta, *direction.shape)
                tensor.core = padded(tensor.core, *direction.shape)
                return direction
            self._as_matrices(state)
        return self._matrix(query)

    def path(self, state: SchattenState, query: Query, scale: float) -> Path:
        direction = self._direction(state, query)
        return Path(spectral_line(state.theta, direction, self.p), direction)

    def move(self, state: SchattenState, path: Path, rate: float) -> None:
        state.theta = state.theta + rate * path.moves
        self._show(state, Schatten(self.p).inverse(state.theta))

    def _show(self, state: SchattenState, h: FloatArray) -> None:
        if isinstance(state.tensor, CoreTensor):
            state.tensor.core = h
        else:
            state.tensor.array = h
            state.tensor.touch()

    def _hypothesis(self, state: SchattenState) -> FloatArray:
        return state.tensor.core if isinstance(state.tensor, CoreTensor) else state.tensor.array

    def _take(self, state: SchattenState, h: FloatArray) -> None:
        state.theta = Schatten(self.p).link(h)
        self._show(state, h)

    def add(self, state: SchattenState, terms: Terms) -> None:
        for coefficient, query in terms:
            direction = self._direction(state, query)
            self._show(state, self._hypothesis(state) + coefficient * direction)
        self._take(state, self._hypothesis(state))

    def confine(self, state: SchattenState, ball_p: float, radius: float) -> None:
        h = self._hypothesis(state)
        if not h.size:
            return
        self._take(state, onto_ball(Schatten(self.p), h, ball_p, radius))

    def dense(self, state: SchattenState) -> FloatArray:
        result = state.tensor.dense() if isinstance(state.tensor, CoreTensor) else state.tensor.array.copy()
        if self.space.symmetric:
            # What stands on the diagonal is no part of the universe.
            np.fill_diagonal(result, 0.0)
        return result


def _triangle(matrix: FloatArray) -> FloatArray:
    """R of the QR decomposition."""
    return np.asarray(np.linalg.qr(matrix)[1], dtype=np.float64)
