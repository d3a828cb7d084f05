"""The common part of mechanisms whose rounds are all on the terms of the session's plan."""

from __future__ import annotations

import math
from abc import abstractmethod

from app.curator.errors import PlanInfeasible
from app.curator.mechanisms.protocol import (
    Answer,
    AnsweringMechanism,
    Dumping,
    RoundNoise,
    S,
    Target,
    Units,
)
from app.curator.opening import Opening
from app.curator.plan import Plan
from app.spaces.errors import InvalidQuery
from app.spaces.query import Query


class PlannedMechanism(AnsweringMechanism[S], Dumping[S]):
    """The common part of mechanisms whose rounds are all on the terms of the session's plan."""

    def __init__(self, opening: Opening) -> None:
        plan = opening.plan
        assert isinstance(plan, Plan)
        self._plan, self._prior = plan, opening.prior
        self._noise, self._price = RoundNoise(plan.noise, plan.noise_scale_units), plan.price

    def admit(self, query: Query) -> None:
        """Refuse what is no sum of counts.

        Raises:
            InvalidQuery: naming what serves.
        """
        if query.only is not None:
            raise InvalidQuery(query.only)

    def again(self, state: S, query: Query, given: Units, bound: float | None, target: Target) -> Answer | None:
        """A first answer stands: another would be known no better."""
        if target.within is not None and not query.is_zero and self._arm(query, target.probability) > target.within:
            return None
        # The first words may have been nearer to the grid than these are, which compile to the same weights.
        return Answer(given, "cached", None if bound is None else max(bound, self.error_bound(query)))

    @abstractmethod
    def _arm(self, query: Query, confidence: float) -> float:
        """How far the interval of an answer reaches to either side, in counts, when it is first given."""

    def _check_within(self, query: Query, target: Target) -> None:
        """Refuse a question whose answer would not be known as well as is asked for.

        Raises:
            PlanInfeasible: saying what could be had.
        """
        if target.within is None:
            return
        arm = self._arm(query, target.probability)
        if arm <= target.within:
            return
        if math.isinf(arm):
            raise PlanInfeasible(
                "within: of answers that are tested only the bound for all of them is known: leave it out, or open a "
                "session that answers from evidence"
            )
        raise PlanInfeasible(
            f"within: the answers of this session reach {arm:,.6g} counts to either side at this confidence: ask for "
            "less, or open a session of a larger share or fewer queries",
            within=arm,
        )

    def error_bound(self, query: Query) -> float:
        """The bound that every answer to ``query`` keeps with probability 1 - beta over the session, in counts.

        The plan's error bound, what rounding the weights can move on all of the mass, and half a grid unit where the
        exact value is finer than the grid. Of a zero query the rounding alone: weights too small for the grid are not
        asked weights of zero.
        """
        return self._error_bound(query, query.rounding)

    def largest_bound(self, query: Query) -> float:
        """The largest that :meth:`error_bound` can be of a query with these weights, however it was spelled.

        A transcript keeps the weights as they were compiled, which does not tell what they were rounded from.
        """
        return self._error_bound(query, self._prior.space.most_rounding)

    def _error_bound(self, query: Query, rounding: float) -> float:
        off = rounding * self._prior.mass_bound
        if query.is_zero:
            return off
        return self._within(query) + off + self._rounded(query)

    def _rounded(self, query: Query) -> float:
        """By how much an exact value may be off where it is finer than the answer grid, in counts."""
        finer = query.grid_bits + self._prior.space.data_bits > self._plan.answer_bits
        return math.ldexp(1, -self._plan.answer_bits - 1) if finer else 0.0

    def _within(self, query: Query) -> float:
        """How far answers on the grid are from the private values at most, in counts."""
        return self._plan.error_bound
