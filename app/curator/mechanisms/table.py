"""Evidence sessions: questions are answered from all that was ever measured of a table, and measured where they must.

The policy (:mod:`app.policies.table`) decides from public things alone. Here it meets the session: queries become
questions, amounts are exact, and the state is what the transcript says: the measurements pinned at the opening, and for
each first answer what was expected, what was measured and what was left.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np

from app.curator.certificates import Certificates
from app.curator.errors import PlanInfeasible
from app.curator.mechanisms.protocol import (
    GREATEST_ANSWER,
    NO_VALUE,
    Answer,
    Due,
    Measure,
    Measured,
    PayingState,
    RoundNoise,
    RoundTerms,
    Source,
    Units,
    Wish,
)
from app.curator.mechanisms.recorded import RecordedMechanism, noise_of, out_of_reach
from app.curator.opening import Opening
from app.curator.planners.table import TablePlan, held_bytes, means_of, residuals_of
from app.estimation.intervals import Estimates
from app.estimation.tables.residuals import Residuals
from app.measurements.pieces import Counts, counts_of, pieces_of
from app.measurements.record import Measurement, Purchase
from app.measurements.strategies.tables import EXACT_BITS, Moment, TableStrategy
from app.measurements.strategy import Strategy
from app.policies.statistics import MOST_CELLS, Statistic, Statistics
from app.policies.table import Bought, OutOfReach, Policy, Prediction, Wanted
from app.spaces.errors import InvalidQuery
from app.spaces.queries.linear import CompiledDense, CompiledSparse
from app.spaces.queries.statistic import CompiledStatistic
from app.spaces.query import Query
from app.spaces.questions import MOST_COUNTED, check_told
from app.spaces.tensor import FloatArray

#: Weights on single cells of a table are taken over a universe of so many cells at most.
MOST_WEIGHTS = 1 << 20
#: Tables of more cells than this are kept as records.
MOST_COUNTS = 1 << 24
#: About what a measured cell takes in memory: its value, in residuals and in fits.
_CELL_BYTES = 64
#: What multipliers of a strategy may add to the bits of its sums.
_SPARE_BITS = 5


@dataclass(eq=False)
class Evidence(PayingState):
    """What a session knows: measurements, and what tests and measurements made certain where it has a contract."""

    residuals: Residuals
    certificates: Certificates = field(default_factory=Certificates)
    policy: Policy | None = None
    #: What was measured of moments of numbers, as counts are in ``residuals``.
    moments: dict[Moment, Residuals] = field(default_factory=dict)

    def learn(self, release: Measurement[TableStrategy]) -> None:
        """Take in what was measured."""
        for moment, measurement in pieces_of(release):
            if moment is None:
                self.residuals.add(measurement)
                continue
            assert isinstance(measurement, Counts)
            known = self.moments.get(moment)
            if known is None:
                known = self.moments[moment] = Residuals(self.residuals.sizes, None, self.residuals.starting)
            known.add(measurement)


class TableMechanism(RecordedMechanism[Evidence]):
    """Answers from evidence.

    Args:
        opening: of the session; its plan is an evidence plan.
    """

    def __init__(self, opening: Opening) -> None:
        super().__init__(opening)
        assert isinstance(opening.plan, TablePlan)
        self._plan = opening.plan

    # ------------------------------------------------------------------ the state

    def start(self) -> Evidence:
        """Nothing is measured yet, and the whole share is left."""
        return Evidence(self._plan.holds, residuals_of(self._space, self._opening.dataset.records))

    def pin(self, state: Evidence, measured: Measured) -> None:
        """Take in what was measured before the first question: by others before the opening, then at the opening, which
        has a price.
        """
        measured.table.strategy.check(self._space)
        state.left = state.left.minus(measured.price)
        state.learn(measured.table)

    def purchases(self, state: Evidence) -> Sequence[Purchase[Strategy]]:
        """What is to be measured at the opening, given what others measured, each with its price.

        Raises:
            PlanInfeasible: when what the session wishes cannot be paid.
        """
        buying = self._opening.dataset.purchase
        try:
            return [buying(each.strategy, each.noise) for each in self._policy(state).opening()]
        except OutOfReach as error:
            raise self._refusal(error) from None

    def admit(self, query: Query) -> None:
        """Refuse a query whose weights cannot be told over the attributes of a table.

        Raises:
            InvalidQuery: naming what serves.
        """
        if query.is_zero:
            return
        if isinstance(query, CompiledSparse | CompiledDense) and self._space.cells > MOST_WEIGHTS:
            raise InvalidQuery(
                f"weights on single cells are answered from evidence up to {MOST_WEIGHTS:,} cells: ask by attributes "
                "(predicate, product, marginal), or in a session of gaussian or laplace"
            )
        if isinstance(query, CompiledStatistic):
            self._check_exact(query)
        counts = query.base if isinstance(query, CompiledStatistic) else query
        if not counts.is_zero:
            check_told(counts.question.cells)

    def decide(self, state: Evidence, query: Query, wish: Wish, leaning: float = 0.0) -> Answer | Due:
        """An estimate where that is good enough or nothing can be paid, else a measurement.

        Raises:
            PlanInfeasible: when what is wished cannot be had; nothing was drawn.
        """
        if query.is_zero:
            return Answer(np.zeros(query.numbers, np.int64), "estimate", None)
        if isinstance(query, CompiledStatistic):
            return self._decide_statistic(state, query, self._wished(wish), leaning)
        question = query.question
        policy, wish = self._policy(state), self._wished(wish)
        left = state.left.renyi if state.left.pure is None else state.left.pure
        try:
            prediction, wanted = policy.decide(
                question, float(left), wish.within, wish.probability, leaning, wish.adaptive
            )
        except OutOfReach as error:
            raise self._refusal(error) from None
        if wanted is not None:
            terms = self._terms_of(wanted)
            if terms.price.within(state.left) == terms.price and wanted.strategy.cells <= MOST_COUNTED:
                expected = self._grid(prediction.values.reshape(-1)), self._unit(prediction.standard_error)
                return Measure(terms, None, wanted.strategy, expected, wish)
        return self._answer(state, query, wish, "estimate")

    def apply(self, state: Evidence, query: Query, due: Due, units: Units | None) -> Answer:
        """The answer from all evidence, what was released for it among that."""
        assert isinstance(due, Measure)
        assert isinstance(due.strategy, TableStrategy)
        assert units is not None
        measured = Measured(Measurement(due.strategy, noise_of(due.terms.noise), units), due.terms.price, due.expected)
        if isinstance(query, CompiledStatistic):
            self._learn_statistic(state, query, measured)
            return self._answer_statistic(state, query, due.wish, "measurement", measured)
        bought = self._learn(state, query, measured)
        return self._answer(state, query, due.wish, "measurement", bought, measured)

    def learn(self, state: Evidence, query: Query, answer: Answer) -> None:
        """Take in a first answer and what was measured for it."""
        if query.is_zero:
            return
        if isinstance(query, CompiledStatistic):
            self._learn_statistic(state, query, answer.measured)
        elif answer.measured is None:
            self._policy(state).record(query.question, None)
        else:
            self._learn(state, query, answer.measured)

    # ------------------------------------------------------------------ what is known

    def accuracy(self, state: Evidence, query: Query, units: Units, wish: Wish) -> Estimates:
        """How well values that were given before are known by now."""
        if isinstance(query, CompiledStatistic) and not query.base.is_zero:
            given = np.where(units == NO_VALUE, np.nan, np.ldexp(units.astype(np.float64), -query.answer_bits))
            return self._shown_statistic(state, query, self._wished(wish), given)
        values = np.ldexp(units.astype(np.float64), -self._plan.answer_bits)
        if query.is_zero or isinstance(query, CompiledStatistic):
            nothing = np.zeros(len(values)) if query.is_zero else np.full(len(values), np.nan)
            return Estimates(values, nothing, nothing, nothing, np.ones(len(values), dtype=bool), wish.probability)
        wish, given = self._wished(wish), query.spread(values)
        found = self._policy(state).shown(query.question, None, wish.probability, wish.adaptive, given)
        return found.each(query.selected)

    # ------------------------------------------------------------------ what it takes

    def nbytes(self, updates: int) -> int:
        """About what measurements and fits take, kept within limits of their own, and every declared value."""
        return held_bytes(self._space)

    def working_bytes(self, state: Evidence, query: Query) -> int:
        """What counting and drawing the cells of one question take, and what is made of them."""
        if query.is_zero:
            return 0
        statistic = isinstance(query, CompiledStatistic)
        counts = query.base if isinstance(query, CompiledStatistic) else query
        if counts.is_zero:
            return 0
        question = counts.question
        named, cells = set(question.attributes), question.cells
        if isinstance(query, CompiledStatistic):
            # Beside moments, or counts of ranges.
            named.add(query.axis)
            cells += MOST_CELLS
        # A table that is kept as counts is summed over what the question does not name, and its sums are weighed.
        whole = 8 * (1 + statistic) * math.prod(self._space.shape[a] for a in named)
        fitted = self._policy(state).working_bytes(question)
        return (whole if self._space.cells <= MOST_COUNTS else 0) + _CELL_BYTES * cells + fitted

    # ------------------------------------------------------------------ within

    def _policy(self, state: Evidence) -> Policy:
        if state.policy is None:
            means = means_of(self._opening.dataset, self._opening.request)
            state.policy = Policy(state.residuals, means)
        return state.policy

    def _refusal(self, error: OutOfReach) -> PlanInfeasible:
        return out_of_reach(error, self._plan)

    def _terms_of(self, wanted: Wanted) -> RoundTerms:
        noise = RoundNoise(wanted.noise.kind, Fraction(wanted.noise.scale))
        return RoundTerms(noise, self._opening.dataset.purchase(wanted.strategy, wanted.noise).price)

    def _learn(self, state: Evidence, query: Query, measured: Measured) -> Bought:
        question = query.question
        assert measured.expected is not None
        units, error = measured.expected
        values = np.ldexp(units.astype(np.float64), -self._plan.answer_bits).reshape(question.shape)
        expected = Prediction(values, math.ldexp(error, -self._plan.answer_bits))
        bought = Bought(expected, counts_of(measured.table))
        state.left = state.left.minus(measured.price)
        self._policy(state).record(question, bought)
        return bought

    def _answer(
        self,
        state: Evidence,
        query: Query,
        wish: Wish,
        source: Any,
        bought: Bought | None = None,
        measured: Measured | None = None,
    ) -> Answer:
        found = self._policy(state).shown(query.question, bought, wish.probability, wish.adaptive)
        found = found.each(query.selected)
        return Answer(self._grid(found.values), source, None, accuracy=found, measured=measured)

    # ------------------------------------------------------------------ statistics

    def _check_exact(self, query: CompiledStatistic) -> None:
        """Refuse sums that might pass 64 bits.

        Raises:
            InvalidQuery: naming what to declare.
        """
        moments = [Moment(query.axis, query.places, 1)]
        if query.kind == "variance":
            moments.append(Moment(query.axis, query.places, 2))
        # Multipliers that divide a price take a few bits more.
        if max(m.largest for m in moments) * self._space.capacity >= 1 << (EXACT_BITS - _SPARE_BITS):
            raise InvalidQuery(
                f"a {query.kind} of so many numbers over {self._space.capacity:,} records passes 64 bits: declare a "
                "smaller capacity, or a coarser grid"
            )

    def _statistics(self, state: Evidence) -> Statistics:
        return Statistics(self._policy(state), state.moments)

    def _decide_statistic(self, state: Evidence, query: CompiledStatistic, wish: Wish, leaning: float) -> Answer | Due:
        """An estimate where that is good enough or nothing can be paid, else a measurement of what it follows from."""
        if query.base.is_zero:
            return Answer(np.full(query.numbers, NO_VALUE), "estimate", None)
        if wish.within is not None and query.kind == "quantile":
            raise PlanInfeasible(
                "within: how wide the interval of a quantile is depends on how many records are near it, which nobody "
                "knows before: leave it out, and see the interval of the answer"
            )
        left = state.left.renyi if state.left.pure is None else state.left.pure
        asked, statistics = Statistic.of_query(query), self._statistics(state)
        if wish.within is not None and query.kind != "sum" and not statistics.begun:
            raise PlanInfeasible(
                f"within: how well a {query.kind} can be known depends on how many records there are, of which nothing "
                "was measured yet: leave it out, or ask for a count before"
            )
        try:
            wanted = statistics.decide(asked, float(left), wish.within, wish.probability, leaning)
        except OutOfReach as error:
            raise self._refusal(error) from None
        strategy = None if wanted is None else wanted.strategy
        if wanted and strategy and strategy.cells <= MOST_COUNTED and strategy.is_exact(self._space.capacity):
            terms = self._terms_of(wanted)
            if terms.price.within(state.left) == terms.price:
                return Measure(terms, None, strategy, None, wish)
        if not statistics.begun:
            raise PlanInfeasible(
                "nothing was measured of the table yet, and the session has too little left to pay with"
            )
        return self._answer_statistic(state, query, wish, "estimate")

    def _learn_statistic(self, state: Evidence, query: CompiledStatistic, measured: Measured | None) -> None:
        """Take in a statistic that was answered, and what was measured for it."""
        if query.base.is_zero:
            return
        self._policy(state).note(query.base.question, paid=measured is not None)
        if measured is not None:
            state.left = state.left.minus(measured.price)
            state.learn(measured.table)

    def _answer_statistic(
        self, state: Evidence, query: CompiledStatistic, wish: Wish, source: Source, measured: Measured | None = None
    ) -> Answer:
        found = self._shown_statistic(state, query, wish)
        # What is far beyond all data is cut before it is put on a grid.
        farthest = math.ldexp(GREATEST_ANSWER, -query.answer_bits)
        told = np.clip(np.nan_to_num(found.values), -farthest, farthest)
        units = np.rint(np.ldexp(told, query.answer_bits)).astype(np.int64)
        units[np.isnan(found.values)] = NO_VALUE
        return Answer(units, source, None, accuracy=found, measured=measured)

    def _shown_statistic(
        self, state: Evidence, query: CompiledStatistic, wish: Wish, given: FloatArray | None = None
    ) -> Estimates:
        """The values of a statistic and how well they are known."""
        asked = Statistic.of_query(query)
        return self._statistics(state).shown(asked, wish.probability, wish.adaptive, given)
