"""The l_p potential on cells: an update touches the query's cells, and one factor scales the others."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from app.constructions import dense
from app.constructions.dumps import Dump, numbers
from app.constructions.mirror.form import Form, Path, Terms, lp_norm, touched
from app.geometry.norms import pieces
from app.geometry.potentials import largest_moved, power_line
from app.geometry.projections import confine
from app.spaces.query import LinearQuery
from app.spaces.tensor import DenseTensor, FloatArray

#: What a difference leaves of a sum is computed anew where it is a smaller part than this.
_KEPT = 2.0**-10
#: The largest ``|tau|^q`` may leave 1 by this power of two before all is divided by it.
_DRIFT = 64
#: Up to this power of two factors of ``|tau|^q`` stay in float64.
_FAR = 900


@dataclass
class PowerState:
    """``theta = unit * tau`` and ``h = (p-1)/2 unit total^((2-q)/q) * powers``.

    ``powers`` is ``sgn(tau) |tau|^(q-1)``, ``total`` the sum of ``|tau|^q`` over the universe, kept near 1 by the
    choice of the unit so that no power leaves float64.
    """

    tau: FloatArray
    powers: DenseTensor
    unit: float
    total: float


@dataclass
class _Moves:
    index: tuple[Any, ...]
    weights: FloatArray
    block: FloatArray
    others: float


@dataclass(frozen=True)
class PowerForm(Form):
    """JT12's potential ``||z||_p^2/(p-1)``; p = 2 is Frieze/Kannan's.

    A line's value needs the touched cells only: ``||theta||_q`` is made of their part and the others's sum.
    Memory is two arrays; an update takes some five powers a touched cell, an answer one pass over the block.
    """

    @property
    def copies(self) -> int:
        """How often a coordinate stands in the array: unordered pairs stand twice."""
        return 2 if self.space.symmetric else 1

    def nbytes(self, updates: int) -> int:
        return 2 * self.space.dense_bytes

    def count(self) -> int:
        return self.space.size

    def start(self) -> PowerState:
        return PowerState(np.zeros(self.space.shape), DenseTensor(np.zeros(self.space.shape)), 1.0, 0.0)

    def dump(self, state: PowerState) -> Dump:
        scalars = numbers(state.unit, state.total)
        return Dump({"tau": state.tau, "powers": state.powers.array, "scalars": scalars})

    def load(self, dump: Dump) -> PowerState:
        unit, total = dump.arrays["scalars"].tolist()
        return PowerState(dump.arrays["tau"], DenseTensor(dump.arrays["powers"]), unit, total)

    def _factor(self, state: PowerState) -> float:
        if state.total == 0.0:
            return 0.0
        return float((self.p - 1) / 2 * state.unit * state.total ** ((2 - self.q) / self.q))

    def answer(self, state: PowerState, query: LinearQuery) -> float:
        return self._factor(state) * query.inner(state.powers)

    def inner(self, left: LinearQuery, right: LinearQuery) -> float:
        return left.inner(DenseTensor(dense.matrix_of(right, self.space.shape)))

    def zeta(self, query: LinearQuery) -> float:
        return lp_norm(query, self.q, self.space.shape, self.copies)

    def largest_zeta(self) -> float:
        return float(self.space.size ** (1 / self.q))

    def path(self, state: PowerState, query: LinearQuery, scale: float) -> Path:
        if state.total == 0.0:
            state.unit = scale
        index, weights = touched(query, self.space.shape)
        block = state.tau[index]
        others = 0.0
        if block.size < state.tau.size:
            # |tau|^q is what stands there already: the power times tau.
            others = state.total - _dot(block, state.powers.array[index]) / self.copies
            if others < _KEPT * state.total:
                untouched = state.tau.copy()
                untouched[index] = 0.0
                others = _dot(untouched, state.powers.array) / self.copies
        unit = state.unit
        line = power_line(block, weights, max(others, 0.0), self.p, self.copies)

        def at(rate: float) -> tuple[float, float]:
            value, slope = line(rate / unit)
            return value * unit, slope

        return Path(at, _Moves(index, weights, block, max(others, 0.0)))

    def move(self, state: PowerState, path: Path, rate: float) -> None:
        moves: _Moves = path.moves
        step = rate / state.unit
        largest = max(largest_moved(moves.block, moves.weights, step), moves.others ** (1 / self.q))
        if largest == 0.0:
            state.tau[...] = 0.0
            state.powers.array[...] = 0.0
            state.powers.touch()
            state.total = 0.0
            return
        others, drift = moves.others, self.q * math.log2(largest)
        if abs(drift) > _DRIFT:
            state.tau /= largest
            state.unit *= largest
            step /= largest
            if abs(drift) < _FAR:
                state.powers.array *= largest ** (1 - self.q)
                others /= largest**self.q
            else:
                # The powers that stood there have left float64.
                kept = state.tau[moves.index].copy()
                state.tau[moves.index] = 0.0
                for powers, tau in pieces(state.powers.array, state.tau, written=1):
                    powers[...] = _signed_power(tau, self.q - 1)
                others = _dot(state.tau, state.powers.array) / self.copies
                state.tau[moves.index] = kept
        # A slice of the state, or a copy of the cells that a list names: both are written back.
        block, raised, total = state.tau[moves.index], state.powers.array[moves.index], 0.0
        for tau, powers, weights in pieces(block, raised, moves.weights, written=2):
            tau += step * weights
            powers[...] = _signed_power(tau, self.q - 1)
            total += float(tau @ powers)
        if not np.may_share_memory(block, state.tau):
            state.tau[moves.index], state.powers.array[moves.index] = block, raised
        state.powers.touch()
        state.total = others + total / self.copies

    def _represent(self, state: PowerState) -> None:
        """Make the state that of the hypothesis which stands in its array of powers."""
        h = state.powers.array
        largest = max(float(h.max()), -float(h.min()))
        if largest == 0.0:
            state.tau[...] = 0.0
            h[...] = 0.0
            state.unit, state.total = 1.0, 0.0
        else:
            # h is a multiple of the powers, and tau^(q-1) = powers.
            total = 0.0
            for tau, powers in pieces(state.tau, h, written=2):
                powers /= largest
                size = np.abs(powers)
                size **= self.p - 1
                np.copysign(size, powers, out=tau)
                total += float(tau @ powers)
            state.total = total / self.copies
            state.unit = 1.0
            state.unit = largest / self._factor(state)
        state.powers.touch()

    def add(self, state: PowerState, terms: Terms) -> None:
        h = state.powers.array
        h *= self._factor(state)
        for coefficient, query in terms:
            dense.add_to(query, h, coefficient)
        self._represent(state)

    def confine(self, state: PowerState, ball_p: float, radius: float) -> None:
        if ball_p == self.p and radius > 0:
            norm = (self.p - 1) / 2 * state.unit * state.total ** (1 / self.q)
            if norm > radius:
                state.unit *= radius / norm
            return
        h = self.dense(state)
        np.abs(h, out=h)
        if confine(h, self.p, ball_p, radius, self.copies):
            # Signs are those of the powers.
            np.copysign(h, state.powers.array, out=state.powers.array)
            self._represent(state)

    def dense(self, state: PowerState) -> FloatArray:
        result: FloatArray = self._factor(state) * state.powers.array
        return result


def _dot(left: FloatArray, right: FloatArray) -> float:
    """The sum of products of two arrays of one shape."""
    return math.fsum(float(a @ b) for a, b in pieces(left, right))


def _signed_power(base: FloatArray, exponent: float) -> FloatArray:
    """``sgn(b) |b|^exponent``."""
    if exponent == 1:
        return base.copy()
    return np.copysign(np.abs(base) ** exponent, base)
