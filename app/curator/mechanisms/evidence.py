"""The evidence of a session on a table, and how it answers a question: one about counts, or a statistic of numbers."""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass, field
from functools import cached_property
from typing import Self

import numpy as np

from app.curator.certificates import Certificates
from app.curator.errors import PlanInfeasible
from app.curator.mechanisms.protocol import PayingState, Target
from app.estimation.intervals import Estimates
from app.estimation.tables.residuals import Residuals
from app.measurements.pieces import counts_in
from app.measurements.record import Measurement
from app.measurements.strategies.tables import Moment, TableStrategy
from app.policies.foretelling import Foretelling
from app.policies.statistics import Statistics, is_sound, take_in
from app.policies.table import Bought, Funds, Policy, Prediction, Wanted
from app.spaces.errors import InvalidQuery
from app.spaces.queries.statistic import CompiledStatistic
from app.spaces.query import Query
from app.spaces.questions import check_told
from app.spaces.space import Space
from app.spaces.tensor import FloatArray

#: What a state takes that knows nothing.
_STATE_BYTES = 512 << 10


@dataclass(eq=False)
class Evidence(PayingState):
    """The state of a session: measurements, and what tests and measurements made certain where it has a contract."""

    residuals: Residuals
    funds: Funds
    certificates: Certificates = field(default_factory=Certificates)
    #: What was measured of moments of numbers, as counts are in ``residuals``.
    moments: dict[Moment, Residuals] = field(default_factory=dict)

    @cached_property
    def policy(self) -> Policy:
        """The policy of the session, by all that was known at its first question."""
        return Policy(self.residuals, self.funds)

    def copied(self) -> Self:
        """Another to decide on, which shares what was measured with this one."""
        made = copy(self)
        made.__dict__["policy"] = self.policy.copied()
        return made

    @property
    def nbytes(self) -> int:
        """About what it takes in memory."""
        known = [self.residuals, *self.moments.values()]
        fitted = self.__dict__["policy"].nbytes if "policy" in self.__dict__ else 0
        return _STATE_BYTES + sum(each.nbytes for each in known) + fitted

    @property
    def statistics(self) -> Statistics:
        """How statistics follow from what is known."""
        return Statistics(self.policy, self.moments)

    def learn(self, release: Measurement[TableStrategy]) -> None:
        """Take in what was measured."""
        take_in(release, self.residuals, self.moments)


class Answerer:
    """How a question is answered from evidence: here one about counts.

    Attributes:
        counts: what is asked about counts, by the question itself or to find what it asks.
        beside: the attributes of which more is measured than counts.
    """

    beside: tuple[int, ...] = ()

    def __init__(self, query: Query, space: Space) -> None:
        self.counts, self._space = query, space

    def check(self) -> None:
        """Refuse what cannot be told.

        Raises:
            InvalidQuery: naming what serves.
        """
        if not self.counts.is_zero:
            check_told(self.counts.question.cells)

    def decide(
        self, state: Evidence, left: float, target: Target, slack: float
    ) -> tuple[Prediction | None, Wanted | None]:
        """Decide: the prediction, where that is held against what is measured, and the purchase; None where the answer
        is free.

        Raises:
            OutOfReach, PlanInfeasible: when what is asked for cannot be had.
        """
        return state.policy.decide(
            self.counts.question, left, target.within, target.probability, slack, target.adaptive
        )

    def foretold(self, state: Evidence, wanted: Wanted, target: Target, records: float | None) -> FloatArray:
        """How far the intervals of the answers reach once this is bought; NaN where there is none. ``records`` is about
        how many there are, where that is public and not exact.
        """
        found = state.policy.reaches_with(self.counts.question, wanted, target.probability, adaptive=target.adaptive)
        return np.asarray(self.counts.selected(found))

    def check_known(self, state: Evidence) -> None:
        """Refuse what nothing is known of, where the policy has not.

        Raises:
            PlanInfeasible: saying so.
        """

    def learn(
        self, state: Evidence, release: Measurement[TableStrategy] | None, expected: Prediction | None
    ) -> Bought | None:
        """Take note of the question, of what was measured for it, and what had been expected of that."""
        bought = None
        if release is not None:
            assert expected is not None
            bought = Bought(expected, counts_in(release))
        state.policy.record(self.counts.question, bought)
        return bought

    def shown(self, state: Evidence, target: Target, bought: Bought | None, given: FloatArray | None) -> Estimates:
        """Values and how well they are known: those that were given, if they were."""
        told = None if given is None else self.counts.spread(given)
        wished = target.within is not None
        found = state.policy.shown(
            self.counts.question, bought, target.probability, target.adaptive, told, inside=wished
        )
        return found.each(self.counts.selected)


class StatisticAnswerer(Answerer):
    """How a statistic of numbers is answered."""

    def __init__(self, query: CompiledStatistic, space: Space) -> None:
        super().__init__(query.counts, space)
        self._query, self.beside = query, query.weighed

    def check(self) -> None:
        """Refuse also sums that might pass 64 bits."""
        query, capacity = self._query, self._space.capacity
        if not is_sound(query, capacity):
            raise InvalidQuery(
                f"a {query.kind} of so many numbers over {capacity:,} records passes 64 bits: declare a smaller "
                "capacity, or a coarser grid"
            )
        super().check()

    def decide(
        self, state: Evidence, left: float, target: Target, slack: float
    ) -> tuple[Prediction | None, Wanted | None]:
        """Decide on a purchase; nothing is expected of it."""
        kind = self._query.kind
        if target.within is not None and kind.endswith("quantile"):
            raise PlanInfeasible(
                "within: how wide the interval of a quantile is depends on how many records are near it, which nobody "
                "knows before: leave it out, and see the interval of the answer"
            )
        if target.within is not None and kind != "sum" and not state.residuals.begun:
            raise PlanInfeasible(
                f"within: how well a {kind} can be known depends on how many records there are, of which nothing was "
                "measured yet: leave it out, or ask for a count before"
            )
        wanted = state.statistics.decide(self._query, left, target.within, target.probability, slack)
        return None, wanted if wanted is not None and wanted.strategy.is_exact(self._space.capacity) else None

    def foretold(self, state: Evidence, wanted: Wanted, target: Target, records: float | None) -> FloatArray:
        """As far as if everybody's numbers were what is expected of them."""
        expected = Foretelling(state.policy, (), state.held, state.moments, records)
        return expected.reaches(self._query, wanted, target.probability, adaptive=target.adaptive)

    def check_known(self, state: Evidence) -> None:
        """Refuse what follows from the number of records where that is not known."""
        if not state.residuals.begun:
            raise PlanInfeasible(
                "nothing was measured of the table yet, and the session has too little left to pay with"
            )

    def learn(self, state: Evidence, release: Measurement[TableStrategy] | None, expected: Prediction | None) -> None:
        """Take note of the statistic, and of what was measured for it."""
        state.policy.note(self.counts.question, paid=release is not None)
        if release is not None:
            state.learn(release)

    def shown(self, state: Evidence, target: Target, bought: Bought | None, given: FloatArray | None) -> Estimates:
        """Values and how well they are known."""
        return state.statistics.shown(self._query, target.probability, target.adaptive, given)


def answerer_of(query: Query, space: Space) -> Answerer:
    """How a question of a table is answered."""
    return StatisticAnswerer(query, space) if isinstance(query, CompiledStatistic) else Answerer(query, space)
