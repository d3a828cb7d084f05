"""What sessions have in common that answer from everything that was measured: each measurement is a record of its own,
the state is made of the transcript alone, and there is no hypothesis that answers by itself.
"""

from __future__ import annotations

import math
from dataclasses import replace
from decimal import Decimal
from typing import Any, Protocol

import numpy as np

from app.constructions.dumps import Dump
from app.curator.errors import PlanInfeasible
from app.curator.mechanisms import GREATEST_ANSWER, Answer, Due, Estimate, RoundNoise, State, Units, Wish
from app.curator.opening import Opening
from app.curator.plan import SessionPlan
from app.declarations.errors import InvalidRequest
from app.estimation.intervals import Estimates
from app.measurements.noise import Noise
from app.policies.table import OutOfReach
from app.privacy.ledger import Amounts
from app.spaces.query import Query
from app.spaces.tensor import FloatArray


class Paying(Protocol):
    """What such a session knows: among that, what is left to pay with."""

    left: Amounts


class RecordedMechanism:
    """The part of a mechanism that is the same whatever is measured.

    Args:
        opening: of the session.
    """

    def __init__(self, opening: Opening) -> None:
        self._opening, self._space = opening, opening.dataset.space
        self._bits = opening.plan.answer_bits
        self._farthest = math.ldexp(GREATEST_ANSWER, -self._bits)
        self._wish = Wish(opening.request.within, opening.request.confidence)

    @property
    def asking_bytes(self) -> int:
        """Nothing that is not counted with the state."""
        return 0

    def missed(self, state: State, query: Query, due: Due) -> Answer:
        """Never: nothing is tested."""
        raise AssertionError("an evidence session without a contract tests nothing")

    def learn(self, state: State, query: Query, units: Units) -> State:
        """Never: every measurement is recorded as one."""
        raise AssertionError("an evidence session learns from measurements")

    def forfeit(self, state: State, price: Amounts) -> State:
        """What the round cost is gone."""
        known: Paying = state.hypothesis
        known.left = known.left.minus(price)
        state.updates += 1
        state.forfeits += 1
        return state

    def satisfied(self, state: State, query: Query, units: Units, wish: Wish) -> bool:
        """Whether no narrower interval is asked for than the one there is.

        Of a question that was asked before, that is the interval which holds for a question that was not chosen by
        noise: who repeats a request pays once.
        """
        wish = replace(self._wished(wish), adaptive=False)
        if wish.within is None or query.is_zero:
            return True
        found = self.accuracy(state, query, units, wish)
        # Where there is no value there is nothing to know better.
        return not bool((found.highs - found.lows > 2 * wish.within).any())

    def accuracy(self, state: State, query: Query, units: Units, wish: Wish) -> Estimates:
        """How well values that were given before are known by now."""
        raise NotImplementedError

    def estimate(self, state: State, query: Query) -> Estimate:
        """Never by itself: what is known without paying is an answer like any other, and says how well it is known."""
        raise InvalidRequest("every answer from evidence says how well it is known: leave unverified out")

    def units(self, estimate: Estimate) -> Units:
        """Estimated values on the answer grid."""
        return self._grid(np.array(estimate.values))

    def error_bound(self, query: Query) -> None:
        """Nothing is promised of all answers at once."""

    def largest_bound(self, query: Query) -> None:
        """The same."""

    @property
    def bound(self) -> int | None:
        """No number is known."""
        return None

    def dump(self, state: State) -> Dump:
        """Nothing: the state is made of the transcript."""
        return Dump()

    def _wished(self, wish: Wish) -> Wish:
        """What a question wishes, or else its session."""
        return wish.over(self._wish)

    def _grid(self, values: FloatArray) -> Units:
        held = np.clip(values, -self._farthest, self._farthest)
        return np.rint(np.ldexp(held, self._bits)).astype(np.int64)

    def _unit(self, value: float) -> int:
        """A standard error on the answer grid."""
        return round(math.ldexp(min(value, self._farthest), self._bits))

    def _real(self, units: Any) -> FloatArray:
        """Whole units of the answer grid in counts."""
        return np.ldexp(np.asarray(units, np.float64), -self._bits)


def noise_of(noise: RoundNoise, bits: int = 0) -> Noise:
    """The noise of a measurement on a grid of 2^-bits, its scale in counts a decimal fraction."""
    scale = noise.scale / (1 << bits)
    return Noise(noise.law, Decimal(scale.numerator) / scale.denominator, bits)


def out_of_reach(error: OutOfReach, plan: SessionPlan) -> PlanInfeasible:
    """The refusal of what cannot be paid, in epsilon."""
    holds = plan.holds
    each = float(plan.epsilon) / float(holds.renyi if holds.pure is None else holds.pure)
    left = max(0.0, error.left) * each
    if not math.isfinite(error.needed):
        return PlanInfeasible("no noise is so small: ask for a wider interval", left=left)
    needed = error.needed * each
    return PlanInfeasible(
        f"the accuracy asked for takes {needed:.4g} of epsilon, and the session has {left:.4g} left: ask for less, "
        "or open a session with a larger share",
        needed=needed,
        left=left,
    )
