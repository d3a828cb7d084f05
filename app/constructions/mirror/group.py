"""The group (2, p) potential on the rows, or the columns, of a matrix."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from app.constructions import dense
from app.constructions.dumps import Dump
from app.constructions.mirror.form import Form, Path, Terms, lp_norm
from app.geometry.norms import Side, row_norms, vector_norm
from app.geometry.potentials import group_line, link_magnitudes
from app.geometry.projections import magnitudes_onto_ball
from app.spaces.queries.linear import CompiledProduct
from app.spaces.query import LinearQuery
from app.spaces.tensor import DenseTensor, FloatArray


@dataclass
class GroupState:
    """theta, the Euclidean norms of its rows, and the hypothesis, whose row i is theta's times ``factors[i]``.

    Of an undirected graph ``tensor`` is the symmetric part of that, which answers every query alike.
    """

    theta: FloatArray
    norms: FloatArray
    factors: FloatArray
    tensor: DenseTensor


@dataclass(frozen=True)
class GroupForm(Form):
    """JT12's group potential ``||Z||_{2,p}^2/(p-1)``, section 4.1.

    Along a query the norms of rows are quadratic in the rate, so a line is searched on one number a row, after one
    pass over the query's block; a move passes over the matrix three times. Columns are rows of the transpose.
    The data of an undirected graph is the full symmetric matrix X and a query F is F/2: ``<F/2, X>`` counts each
    pair once.
    """

    side: Side

    def nbytes(self, updates: int) -> int:
        return 2 * self.space.dense_bytes

    def count(self) -> int:
        return self.space.shape[0 if self.side == "rows" else 1]

    @property
    def _half(self) -> float:
        return 0.5 if self.space.symmetric else 1.0

    def start(self) -> GroupState:
        zero = np.zeros(self.space.shape)
        return GroupState(zero, np.zeros(self.count()), np.zeros(self.count()), DenseTensor(zero.copy()))

    def dump(self, state: GroupState) -> Dump:
        return Dump({"theta": state.theta, "norms": state.norms, "factors": state.factors})

    def load(self, dump: Dump) -> GroupState:
        theta, norms, factors = (dump.arrays[name] for name in ("theta", "norms", "factors"))
        state = GroupState(theta, norms, factors, DenseTensor(np.empty(self.space.shape)))
        self._show(state)
        return state

    def answer(self, state: GroupState, query: LinearQuery) -> float:
        return query.inner(state.tensor)

    def inner(self, left: LinearQuery, right: LinearQuery) -> float:
        # Over both halves <F/2, G/2> is half of the sum over pairs.
        return self._half * left.inner(DenseTensor(dense.matrix_of(right, self.space.shape)))

    def zeta(self, query: LinearQuery) -> float:
        if isinstance(query, CompiledProduct):
            return _factor_norms(query, self.side, self.space.shape, self.q)
        return self._half * vector_norm(row_norms(dense.matrix_of(query, self.space.shape), self.side), self.q)

    def largest_zeta(self) -> float:
        across = self.space.shape[1 if self.side == "rows" else 0]
        return float(self._half * across**0.5 * self.count() ** (1 / self.q))

    def path(self, state: GroupState, query: LinearQuery, scale: float) -> Path:
        products, lengths = self._rows(state, query)
        touched = lengths > 0
        squares = state.norms[touched] ** 2
        others = vector_norm(state.norms[~touched], self.q)
        line = group_line(squares, products[touched], lengths[touched], others**self.q, self.p)
        return Path(line, query)

    def _rows(self, state: GroupState, query: LinearQuery) -> tuple[FloatArray, FloatArray]:
        """``<f_i, theta_i>`` and ``||f_i||^2`` of every row i."""
        theta = state.theta if self.side == "rows" else state.theta.T
        if isinstance(query, CompiledProduct):
            left, right = (
                np.ones(length) if axis is None else axis.real_vector()
                for axis, length in zip(query.axes, self.space.shape, strict=True)
            )
            along, across = (left, right) if self.side == "rows" else (right, left)
            return along * (theta @ across), along**2 * float(across @ across)
        f = dense.matrix_of(query, self.space.shape)
        f = f if self.side == "rows" else f.T
        return self._half * np.einsum("ij,ij->i", f, theta), self._half**2 * np.einsum("ij,ij->i", f, f)

    def move(self, state: GroupState, path: Path, rate: float) -> None:
        dense.add_to(path.moves, state.theta, self._half * rate)
        state.norms = row_norms(state.theta, self.side)
        total = vector_norm(state.norms, self.q)
        ratio = state.norms / total if total > 0 else state.norms
        state.factors = (self.p - 1) / 2 * (ratio ** (self.q - 2) if self.q > 2 else np.ones_like(ratio))
        self._show(state)

    def _show(self, state: GroupState) -> None:
        np.multiply(state.theta, self._by_row(state.factors), out=state.tensor.array)
        if self.space.symmetric:
            both = state.tensor.array + state.tensor.array.T
            both /= 2
            state.tensor.array = both
        state.tensor.touch()

    def _by_row(self, factors: FloatArray) -> FloatArray:
        """One factor a row, ready to be multiplied with a matrix."""
        return factors[:, None] if self.side == "rows" else factors[None, :]

    def _magnitudes(self, state: GroupState) -> FloatArray:
        """Norms of the hypothesis' rows."""
        return state.factors * state.norms

    def _rescale(self, state: GroupState, magnitudes: FloatArray) -> None:
        """Give the hypothesis' rows other norms in the same directions."""
        norms = link_magnitudes(magnitudes, self.p)
        ratio = np.divide(norms, state.norms, out=np.zeros_like(norms), where=state.norms > 0)
        state.theta *= self._by_row(ratio)
        state.norms = np.where(state.norms > 0, norms, 0.0)
        state.factors = np.divide(magnitudes, norms, out=np.zeros_like(norms), where=norms > 0)
        self._show(state)

    def add(self, state: GroupState, terms: Terms) -> None:
        # The hypothesis itself, not its symmetric part.
        h = state.theta
        h *= self._by_row(state.factors)
        for coefficient, query in terms:
            dense.add_to(query, h, self._half * coefficient)
        state.norms = row_norms(h, self.side)
        self._rescale(state, state.norms)

    def confine(self, state: GroupState, ball_p: float, radius: float) -> None:
        magnitudes = self._magnitudes(state)
        confined = magnitudes_onto_ball(magnitudes, self.p, ball_p, radius)
        if confined is not magnitudes:
            self._rescale(state, confined)

    def dense(self, state: GroupState) -> FloatArray:
        return state.tensor.array.copy()


def _factor_norms(query: CompiledProduct, side: Side, shape: tuple[int, ...], q: float) -> float:
    """The group norm of a product: l_q of the factor along the side times l_2 of the other."""
    left, right = query.axes
    along, across = (left, right) if side == "rows" else (right, left)
    rows, columns = shape if side == "rows" else (shape[1], shape[0])
    first = lp_norm(CompiledProduct((along,), 0.0, (rows,)), q, (rows,), 1)
    return first * lp_norm(CompiledProduct((across,), 0.0, (columns,)), 2, (columns,), 1)
