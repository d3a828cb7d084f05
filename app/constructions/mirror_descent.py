"""Mirror descent: the potential of a norm that suits data and queries, one machine for all of them.

Source: JT12 section 3.2, algorithm 2. Multiplicative weights are its case of the entropy
(:mod:`app.constructions.multiplicative_weights`), Frieze/Kannan its case of l_2.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from app.constructions.base import (
    BOUNDED_STEPS,
    MeasuredQuery,
    PublicFacts,
    Step,
    check_zeta,
    target_of,
)
from app.constructions.dumps import Dump
from app.constructions.mechanism import MdMechanism
from app.constructions.mirror.form import Form
from app.constructions.mirror.group import GroupForm
from app.constructions.mirror.power import PowerForm
from app.constructions.mirror.schatten import SchattenForm
from app.constructions.refit import Kept, RefittingConstruction, euclidean
from app.geometry.norms import Norm
from app.geometry.projections import first_rate, solve
from app.spaces.query import LinearQuery
from app.spaces.space import Space
from app.spaces.tensor import FloatArray

#: The most that answers of what is learnt may be from a query's own, as a part of the progress alpha.
_NEAR = 2.0**-6


@dataclass
class MirrorState:
    """The form's own state, and what a refit keeps."""

    form: Any
    kept: Kept


@dataclass(frozen=True)
class MirrorDescent(RefittingConstruction):
    """Mirror descent with a squared-norm potential ``Psi = ||z||^2/(p-1)``, from the zero hypothesis, its minimum.

    With ``step="projection"`` an update is the Bregman projection of h on ``{z: s<f,z> >= s*target}``: theta moves
    along f until the answer is the target. With ``step="paper"`` it moves by ``eta = mu alpha/zeta^2``, zeta being
    this query's own dual norm. Either way ``D(x; h)`` falls by at least ``mu alpha^2/(2 zeta^2)``. Then h is
    projected on the ball of ``ball``'s norm where one is known to hold the data, which lowers D(x; h) further.
    """

    space: Space
    facts: PublicFacts
    step: Step
    progress: float
    form: Form
    norm: Norm
    ball: Norm | None
    zeta: float | None

    def nbytes(self, updates: int) -> int:
        kept = 8 * updates**2 if self.step == "refit" else 0
        return self.form.nbytes(updates) + kept

    def _measurements(self, state: MirrorState) -> int:
        return len(state.kept.measurements)

    def working_bytes(self, state: MirrorState, query: LinearQuery) -> int:
        return self.form.working_bytes(state.form, query) + self.system_bytes(state)

    def admit(self, query: LinearQuery) -> None:
        if self.zeta is not None:
            check_zeta(self.form.zeta(query), self.zeta)

    def start(self) -> MirrorState:
        """The zero hypothesis."""
        return MirrorState(self.form.start(), Kept())

    def answer(self, state: MirrorState, query: LinearQuery) -> float:
        return self.form.answer(state.form, query)

    @property
    def radius(self) -> float | None:
        """The radius of the ball that the hypothesis is kept in; None where there is none.

        The ball's norm is one that was bought, or that is public because entries are 0 or 1. Bounds that merely
        follow from the mass confine too little to be worth the projection.
        """
        if self.ball is None:
            return None
        exact = exact_norm(self.space, self.facts, self.ball)
        return self.facts.norms.get(self.ball.name) if exact is None else exact

    def update(self, state: MirrorState, measurement: MeasuredQuery) -> None:
        """Move theta along the query, in place; confine and refit where that is asked for."""
        query = measurement.query
        zeta = self.form.zeta(query)
        if zeta == 0.0:
            return
        present = self.answer(state, query)
        target = target_of(measurement, present, self.step)
        off = self.form.approximate(state.form, query, self._room(zeta))
        if off and abs(target - present) <= 2 * off:
            return
        if off and self.step in BOUNDED_STEPS:
            # What the measurement certifies of the query it certifies, drawn back, of what is learnt instead.
            target -= math.copysign(off, target - present)
        if self.step == "paper":
            rate = math.copysign(self._rate(self.progress, zeta), measurement.value - present)
            self.form.move(state.form, self.form.path(state.form, query, abs(rate)), rate)
        elif target != present:
            guess = first_rate(2.0, zeta, target - present)
            # From zero the answer at a rate is (p-1)/2 rate zeta^2.
            path = self.form.path(state.form, query, abs(guess) / (self.form.p - 1))
            rate = solve(path.line, target, guess, scale=abs(present))
            self.form.move(state.form, path, rate)
            del path  # and the weights in it: room for what follows
        self._confine(state)
        if self.step == "refit":
            state.kept.keep(measurement, self.form.inner)
            known = [m.query for m in state.kept.measurements]
            answers = np.array([self.answer(state, q) for q in known])
            self.form.add(state.form, list(zip(euclidean(state.kept, answers).tolist(), known, strict=True)))
            self._confine(state)

    def _room(self, zeta: float) -> float:
        """How far what is learnt may be from the query, in counts, so that no update gains less than the bound needs.

        With answers e apart in all, the gap of what is learnt is at least alpha - 2e. The divergence then falls by
        ``(mu/2) (alpha - 2e)^2/zeta^2`` or more (a fixed-length step: ``(mu/2) (alpha^2 - 2 alpha e)/zeta^2``). That is
        the bound's ``(mu/2) (alpha/Z)^2``, Z being the largest zeta, while ``4e <= alpha (1 - (zeta/Z)^2)``.
        """
        return self.progress * min((1 - (zeta / self._largest_zeta) ** 2) / 4, _NEAR)

    def dump(self, state: MirrorState) -> Dump:
        """The form's state, and what a refit keeps."""
        return self.form.dump(state.form).within("form") | state.kept.dump().within("kept")

    def load(self, dump: Dump) -> MirrorState:
        """The state that :meth:`dump` wrote."""
        return MirrorState(self.form.load(dump.part("form")), Kept.load(self.space, dump.part("kept")))

    def _confine(self, state: MirrorState) -> None:
        if self.ball is not None and self.radius is not None:
            self.form.confine(state.form, self.ball.p, self.radius)

    @staticmethod
    def _rate(progress: float, zeta: float) -> float:
        """JT12's eta for ``mu = 2``."""
        return 2 * progress / zeta**2

    @property
    def _largest_zeta(self) -> float:
        largest = self.form.largest_zeta()
        return largest if self.zeta is None else min(largest, self.zeta)

    def bound(self, progress: float) -> float | None:
        """``2 zeta^2 D0/(mu alpha^2)`` with ``D0 = max Psi`` over the ball: ``zeta^2 R^2/((p-1) alpha^2)``.

        zeta bounds the dual norm of every query that may come: the promised one, or what weights in [-1, 1] can
        have. R is the least bound on the data's norm that is known.
        """
        if self.step not in BOUNDED_STEPS:
            return None
        known = norm_bound(self.space, self.facts, self.norm)
        if self.ball is not None and self.radius is not None:
            # ||x||_p <= ||x||_r for r <= p, and ||x||_p <= count^(1/p - 1/r) ||x||_r for r > p.
            wider = float(self.form.count()) ** max(0.0, 1 / self.norm.p - 1 / self.ball.p)
            known = self.radius * wider if known is None else min(known, self.radius * wider)
        if known is None:
            return None
        return (self._largest_zeta * known / progress) ** 2 / (self.form.p - 1)

    def step_size(self, progress: float) -> float:
        """``eta = mu alpha/zeta^2`` at the largest zeta; a query with a smaller norm moves further."""
        return self._rate(progress, self._largest_zeta)

    def dense(self, state: MirrorState) -> FloatArray:
        return self.form.dense(state.form)


def exact_norm(space: Space, facts: PublicFacts, norm: Norm) -> float | None:
    """The norm itself where it is public: ``||x||_p^p = n`` where entries are 0 or 1 and their number n is known."""
    unweighted = space.largest == 1 and space.data_bits == 0 and not space.signed
    if norm.family != "lp" or not unweighted or facts.mass is None or facts.padded:
        return None
    return float(facts.mass ** (1 / norm.p))


def norm_bound(space: Space, facts: PublicFacts, norm: Norm) -> float | None:
    """The least upper bound on a norm of the data that the public facts give, or None.

    With entries up to M, mass n (where entries have one sign) and m magnitudes: the norm itself where it was
    bought; ``||x||_p^p <= M^(p-1) n``, or ``<= M^p`` a cell; ``||x||_p <= n``; ``m^(1/p-1/2) ||x||_2``. Group and
    Schatten norms are at most the l_p norm of the entries for p <= 2, and meet the full matrix of an undirected
    graph, which holds each pair twice.
    """
    copies = 2 if space.symmetric and norm.family != "lp" else 1
    mass = None if facts.mass is None or space.signed else copies * facts.mass
    bounds = [facts.norms[norm.name]] if norm.name in facts.norms else []
    if mass is not None:
        bounds.append(mass)
    if space.largest is not None:
        most = float(space.largest)
        bounds.append(float(copies * space.size) ** (1 / norm.p) * most)
        if mass is not None:
            bounds.append((most ** (norm.p - 1) * mass) ** (1 / norm.p))
    square = space.norm2sq_bound(facts.mass)
    if square is not None and norm.p <= 2:
        counts = {"lp": space.size, "schatten": min(space.shape, default=1)}
        count = counts.get(norm.family) or space.shape[0 if norm.side == "rows" else 1]
        bounds.append(count ** (1 / norm.p - 0.5) * math.sqrt(copies * square))
    return min(bounds, default=None)


def mirror_descent(
    mechanism: MdMechanism, space: Space, facts: PublicFacts, progress: float, norm: Norm
) -> MirrorDescent:
    """Mirror descent in the geometry of a norm."""
    form: Form
    match norm.family:
        case "lp":
            form = PowerForm(space, norm.p)
        case "group":
            form = GroupForm(space, norm.p, norm.side or "rows")
        case "schatten":
            form = SchattenForm(space, norm.p)
    return MirrorDescent(space, facts, mechanism.step, progress, form, norm, mechanism.ball(space), mechanism.zeta)
