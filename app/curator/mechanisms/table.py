"""Evidence sessions: questions are answered from all that was ever measured of a table, and measured where they must.

The policy (:mod:`app.policies.table`) decides from public things alone. Here it meets the session: queries become
questions, amounts are exact, and the state is what the transcript says: the measurements pinned at the opening, and for
each first answer what was expected, what was measured and what was left.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from app.curator.expectation import Expectation
from app.curator.mechanisms.evidence import Evidence, answerer_of
from app.curator.mechanisms.protocol import (
    NO_VALUE,
    Answer,
    Buy,
    Due,
    MarginalTest,
    Measured,
    Source,
    Target,
    Units,
)
from app.curator.mechanisms.recorded import RecordedMechanism, out_of_reach
from app.curator.opening import Opening
from app.curator.planners.table import TablePlan, foretold, funds_of, most_bytes, residuals_of
from app.curator.workloads import values_bytes
from app.estimation.intervals import Estimates
from app.measurements.record import Purchase
from app.measurements.strategies.drawn import MOST_BLOCKS
from app.measurements.strategies.tables import TableStrategy
from app.measurements.strategy import Strategy
from app.policies.foretelling import Foretelling
from app.policies.quantiles import MOST_CELLS
from app.policies.table import Bought, OutOfReach, Prediction, Wanted
from app.spaces.errors import InvalidQuery
from app.spaces.queries.linear import CompiledDense, CompiledSparse
from app.spaces.query import Query
from app.spaces.questions import MOST_COUNTED
from app.spaces.tensor import FloatArray

#: Weights on single cells of a table are taken over a universe of so many cells at most.
MOST_WEIGHTS = 1 << 20
#: Tables of more cells than this are kept as records.
MOST_COUNTS = 1 << 24
#: About what a measured cell takes in memory: its value, in residuals and in fits.
_CELL_BYTES = 64


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
        dataset = self._opening.dataset
        residuals = residuals_of(self._space, dataset.records)
        return Evidence(self._plan.holds, residuals, funds_of(dataset, self._opening.request))

    def pin(self, state: Evidence, measured: Measured) -> None:
        """Take in what was measured before the first question: by others before the opening, then at the opening, which
        has a price.
        """
        measured.table.strategy.check(self._space)
        state.left = state.left.minus(measured.price)
        state.learn(measured.table)

    def purchases(self, state: Evidence) -> Sequence[Purchase[Strategy]]:
        """The measurements due at the opening, given what others measured, each with its price.

        Raises:
            PlanInfeasible: when what the session asks for cannot be paid.
        """
        buying = self._opening.dataset.purchase
        try:
            return [buying(each.strategy, each.noise) for each in state.policy.opening()]
        except OutOfReach as error:
            raise out_of_reach(error, self._plan) from None

    def expectation(self, state: Evidence, made: Sequence[Measured]) -> Expectation:
        """By all that was measured of the table."""
        for measured in made:
            self.pin(state, measured)
        dataset = self._opening.dataset
        return foretold(dataset, Foretelling(state.policy, (), state.held, state.moments, records=dataset.facts.mass))

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
        answerer_of(query, self._space).check()

    def decide(self, state: Evidence, query: Query, target: Target, slack: float = 0.0) -> Answer | Due:
        """An estimate where that is good enough or nothing can be paid, else a measurement.

        Raises:
            PlanInfeasible: when what is asked for cannot be had; nothing was drawn.
        """
        answerer, target = answerer_of(query, self._space), self._targeted(target)
        if answerer.counts.is_zero:
            return Answer(np.full(query.numbers, 0 if query.is_zero else NO_VALUE), "estimate", None)
        try:
            prediction, wanted = answerer.decide(state, state.held, target, slack)
        except OutOfReach as error:
            raise out_of_reach(error, self._plan, query) from None
        if wanted is not None and wanted.strategy.cells <= MOST_COUNTED:
            purchase = self._opening.dataset.purchase(wanted.strategy, wanted.noise)
            if state.pays(purchase.price):
                expected = None
                if prediction is not None:
                    expected = self._grid(prediction.values.reshape(-1)), self._unit(prediction.standard_error)
                return Buy(purchase, expected, target)
        answerer.check_known(state)
        return self._unbought(self._answer(state, query, target, "estimate"), self._plan)

    def apart(self, state: Evidence) -> Evidence:
        """A copy: fits start from the last ones that were made."""
        return state.copied()

    def pass_by(self, state: Evidence, query: Query, due: Answer | Due) -> None:
        """What a purchase costs is spent, and the question has been asked."""
        counts = answerer_of(query, self._space).counts
        if isinstance(due, Buy):
            state.left = state.left.minus(due.price)
        if not counts.is_zero:
            state.policy.note(counts.question, paid=isinstance(due, Buy))

    def foretold(self, state: Evidence, query: Query, due: Due) -> FloatArray | None:
        """As far as noise tells; of a statistic as if what is expected were measured."""
        assert isinstance(due, Buy)
        if isinstance(due, MarginalTest):
            return None
        strategy = due.purchase.strategy
        assert isinstance(strategy, TableStrategy)
        wanted = Wanted(strategy, due.purchase.added)
        return answerer_of(query, self._space).foretold(state, wanted, due.target, self._opening.dataset.facts.mass)

    def apply(self, state: Evidence, query: Query, due: Due, units: Units | None) -> Answer:
        """The answer from all evidence, what was released for it among that."""
        assert isinstance(due, Buy)
        assert units is not None
        measured = due.measured(units)
        return self._answer(state, query, due.target, "measurement", self._learn(state, query, measured), measured)

    def learn(self, state: Evidence, query: Query, answer: Answer) -> None:
        """Take in a first answer and what was measured for it."""
        if not answerer_of(query, self._space).counts.is_zero:
            self._learn(state, query, answer.measured)

    # ------------------------------------------------------------------ what is known

    def show(self, state: Evidence, query: Query, units: Units, target: Target) -> Estimates:
        """How well values that were given before are known by now."""
        given = self._numbers(query, units, query.answer_bits)
        answerer = answerer_of(query, self._space)
        if answerer.counts.is_zero:
            # Of no value nothing is known, of nothing all.
            errors = 0 * given
            return Estimates(given, errors, errors, errors, np.ones(len(given), dtype=bool), target.probability)
        return answerer.shown(state, self._targeted(target), None, given)

    # ------------------------------------------------------------------ what it takes

    def nbytes(self, updates: int) -> int:
        """About what measurements and fits take, kept within limits of their own, and every declared value."""
        return most_bytes(self._space)

    def held_bytes(self, state: Evidence) -> int:
        """What measurements and fits take now, and every declared value: seldom more than a part of what they may."""
        return min(state.nbytes + values_bytes(self._space), most_bytes(self._space))

    def working_bytes(self, state: Evidence, query: Query) -> int:
        """The memory that the cells of one question take, counted and drawn, and what is made of them."""
        answerer = answerer_of(query, self._space)
        if answerer.counts.is_zero:
            return 0
        question, beside = answerer.counts.question, answerer.beside
        # Beside counts there are moments, or counts of ranges and what is looked at to draw where they are.
        cells = question.cells + len(beside) * (MOST_CELLS + MOST_BLOCKS)
        if not beside:
            cells += state.policy.base_cells
        # A table that is kept as counts is summed over what the question does not name, and its sums are weighed.
        whole = 8 * (1 + len(beside)) * math.prod(self._space.shape[a] for a in {*question.attributes, *beside})
        fitted = state.policy.working_bytes(question)
        return (whole if self._space.cells <= MOST_COUNTS else 0) + _CELL_BYTES * cells + fitted

    # ------------------------------------------------------------------ within

    def _learn(self, state: Evidence, query: Query, measured: Measured | None) -> Bought | None:
        release, expected = None, None
        if measured is not None:
            state.left, release = state.left.minus(measured.price), measured.table
            if measured.expected is not None:
                values, error = map(self._real, measured.expected)
                expected = Prediction(values.reshape(query.question.shape), float(error))
        return answerer_of(query, self._space).learn(state, release, expected)

    def _answer(
        self,
        state: Evidence,
        query: Query,
        target: Target,
        source: Source,
        bought: Bought | None = None,
        measured: Measured | None = None,
    ) -> Answer:
        found = answerer_of(query, self._space).shown(state, target, bought, None)
        return self._told(query, source, found, query.answer_bits, measured)
