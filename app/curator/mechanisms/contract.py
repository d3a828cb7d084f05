"""Contract sessions: every answer keeps a bound that holds for all of them at once, and only surprises are paid for.

A question is answered free where what was tested or measured before tells enough of it. Otherwise the cells that it
tells apart are tested: all of them together are held against what is expected of them, and if they are near nothing is
paid, and what was expected is the answer; if they are far they are measured. The terms are those of the plan
(:mod:`app.curator.planners.contract`), what is known for certain are certificates (:mod:`app.curator.certificates`).
"""

from __future__ import annotations

import math
from dataclasses import replace
from decimal import Decimal

import numpy as np

from app.curator.certificates import Certificate, whole_counts
from app.curator.errors import PlanInfeasible, UpdatesExhausted
from app.curator.mechanisms.evidence import Evidence
from app.curator.mechanisms.protocol import Answer, Due, MarginalTest, Measured, RoundNoise, Target, Units
from app.curator.mechanisms.table import TableMechanism
from app.curator.opening import Opening
from app.curator.planners.contract import MOST_TESTED, ContractPlan
from app.measurements.noise import Noise
from app.measurements.pieces import Counts, counts_of
from app.measurements.record import Purchase
from app.measurements.strategies.tables import TableStrategy
from app.privacy.ledger import Amounts
from app.spaces.errors import InvalidQuery
from app.spaces.queries.statistic import CompiledStatistic
from app.spaces.query import Query
from app.spaces.questions import Cells, Question, Sum
from app.spaces.tensor import FloatArray


class ContractMechanism(TableMechanism):
    """Answers from evidence with a bound that tests keep.

    Args:
        opening: of the session; its plan has the terms of a contract.
    """

    def __init__(self, opening: Opening) -> None:
        super().__init__(opening)
        assert isinstance(opening.plan, ContractPlan)
        self._contract = opening.plan.contract
        self._tests = RoundNoise("laplace", self._contract.scale)
        self._fresh, scale = RoundNoise("gaussian", self._contract.measured_scale), self._contract.measured_scale
        self._noise = Noise("gaussian", Decimal(scale.numerator) / scale.denominator, 0)
        #: What a hit costs, and a forfeit.
        self.price = Amounts(self._contract.cost_per_update)

    def admit(self, query: Query) -> None:
        """Refuse also what has too many cells to be tested, and weights that had to be rounded."""
        if isinstance(query, CompiledStatistic):
            raise InvalidQuery(
                f"a contract is about counts, and a {query.kind} is none: ask it of a session without a contract"
            )
        super().admit(query)
        if query.rounding:
            raise InvalidQuery(
                "the weights of a question in a contract session are exact: multiples of a power of two, 2^-20 or more"
            )
        if not query.is_zero and query.question.cells > MOST_TESTED:
            raise InvalidQuery(f"a contract session tests at most {MOST_TESTED:,} cells at a time: name fewer")

    def decide(self, state: Evidence, query: Query, target: Target, slack: float = 0.0) -> Answer | Due:
        """An answer that is certain enough, else a test.

        Raises:
            UpdatesExhausted: when none is left for a hit, and nothing is certain of the question.
            PlanInfeasible: when a width is asked for, or nothing at all is known of the table.
        """
        if query.is_zero:
            return Answer(np.zeros(query.numbers, np.int64), "estimate", 0.0)
        if target.within is not None:
            raise PlanInfeasible("what a contract session keeps follows from its plan: leave within out")
        if not state.residuals.begun:
            raise PlanInfeasible("the session's share pays for nothing: open one with a larger share")
        question = query.question
        values = self._expected(state, question)
        free = self._certain(state, query, values, slack)
        if free is not None:
            return self._certified(state, query, free, target)
        if state.updates >= self._contract.max_updates or not state.pays(self.price):
            bound = self._bound(state, query, query.selected(values))
            if math.isfinite(bound):
                return self._certified(state, query, values, target)
            raise UpdatesExhausted(
                "all updates of the plan are used, and nothing is certain of this question: open another session",
                max_updates=self._contract.max_updates,
            )
        prediction = state.policy.predicted(question)
        marginal = question.marginal_of(self._space.shape)
        return MarginalTest(
            purchase=Purchase(TableStrategy.of(marginal), self._noise, self.price),
            counts=whole_counts(self._expected(state, Cells(marginal))).reshape(-1),
            threshold=self._contract.threshold_units,
            race=self._contract.race,
            noise=self._tests,
            fresh=self._fresh,
            expected=(self._grid(prediction.values.reshape(-1)), self._unit(prediction.standard_error)),
            target=target,
        )

    def apply(self, state: Evidence, query: Query, due: Due, units: Units | None) -> Answer:
        """The answer from all evidence, a fresh measurement among that; of a miss what was expected: that is near
        enough, as is by now certain.
        """
        assert isinstance(due, MarginalTest)
        if units is None:
            question = query.question
            certificate = self._passed(state, question, due.counts)
            values = self._held(certificate, question, self._expected(state, question))
            return replace(self._certified(state, query, values, due.target, certificate), tested=due.counts)
        measured = due.measured(units)
        bought = self._learn(state, query, measured)
        answer = self._answer(state, query, due.target, "measurement", bought, measured)
        self._certify(state, measured)
        return replace(answer, error_bound=self.bound_of(state, query, answer))

    def learn(self, state: Evidence, query: Query, answer: Answer) -> None:
        """Take in a first answer, what was measured for it, or the counts that a test found near."""
        super().learn(state, query, answer)
        if answer.measured is not None:
            self._certify(state, answer.measured)
        if answer.tested is not None:
            state.certificates.add(self._passed(state, query.question, answer.tested))

    def bound_of(self, state: Evidence, query: Query, answer: Answer) -> float:
        """The bound of an answer whose values, measurement and tested counts are these, as the state has it now: a miss
        is not taken in yet, a measurement is.
        """
        values = np.ldexp(answer.units.astype(np.float64), -self._plan.answer_bits)
        if query.is_zero:
            return 0.0
        if answer.measured is not None:
            return self._measured_bound(query, values, counts_of(answer.measured.table))
        passed = None if answer.tested is None else self._passed(state, query.question, answer.tested)
        return self._bound(state, query, values, passed)

    # ------------------------------------------------------------------ within

    def _expected(self, state: Evidence, question: Question) -> FloatArray:
        """The values that evidence makes of a question."""
        return state.policy.value(question, None)

    def _passed(self, state: Evidence, question: Question, counts: Units) -> Certificate:
        """The gap that a miss certifies."""
        marginal = question.marginal_of(self._space.shape)
        made = len(state.residuals.measurements)
        return Certificate(marginal, counts.reshape(marginal.shape), self._contract.gap, math.inf, made, tested=True)

    def _certify(self, state: Evidence, measured: Measured) -> None:
        """Keep what a measurement tells."""
        measurement, made = counts_of(measured.table), len(state.residuals.measurements)
        gap, each = (
            self._contract.noise_gap(measurement.marginal.cells),
            self._contract.reach(measurement.marginal.cells),
        )
        state.certificates.add(Certificate(measurement.marginal, measurement.units, gap, each, made, tested=False))

    def _held(self, certificate: Certificate, question: Question, values: FloatArray) -> FloatArray:
        """Values no farther from what was tested than answers may drift."""
        centre, drift = certificate.centre(question), self._contract.drift
        return np.clip(values, centre - drift, centre + drift)

    def _certain(self, state: Evidence, query: Query, values: FloatArray, slack: float) -> FloatArray | None:
        """The values of a question of which enough is certain; None where it is to be tested.

        What was tested since the last measurement is not tested again. What was tested or measured before serves as
        long as present values have not drifted too far from it.
        """
        question = query.question
        made, total = len(state.residuals.measurements), self._opening.dataset.records
        allowed = self._contract.drift + _spread(question, total) * self._contract.gap
        drifted: FloatArray | None = None
        for each in state.certificates.covering(question):
            if each.tested and each.made == made:
                return self._held(each, question, values)
            if drifted is None:
                apart = query.selected(np.abs(values - each.centre(question))).max()
                if (each.radius(question, total) + apart) * (1 + slack) <= allowed:
                    drifted = values
        return drifted

    def _bound(self, state: Evidence, query: Query, values: FloatArray, passed: Certificate | None = None) -> float:
        """The least that certificates tell of how far values are off; infinite where none covers the question."""
        question, found = query.question, math.inf
        for each in [*state.certificates.covering(question), *(() if passed is None else (passed,))]:
            apart = np.abs(values - query.selected(each.centre(question))).max()
            found = min(found, each.radius(question, self._opening.dataset.records) + float(apart))
        return self._up(found)

    def _measured_bound(self, query: Query, values: FloatArray, measurement: Counts) -> float:
        """How far values are off at most by the measurement that was made for them."""
        own = Certificate(measurement.marginal, measurement.units, 0.0, 0.0, 0, tested=False)
        question = query.question
        centre = query.selected(own.centre(question))
        # Its cells are those that the question tells apart, one or some of which make an answer of a marginal.
        length = math.sqrt(question.merged)
        if isinstance(question, Sum):
            weights = question.on(question.partitions)
            length = float(np.sqrt(np.square(weights).sum()))
        return self._up(length * self._contract.reach(len(values)) + float(np.abs(values - centre).max()))

    def _up(self, bound: float) -> float:
        """A bound rounded up to the answer grid, and a unit more for what floats may be off."""
        if math.isinf(bound):
            return bound
        return math.ldexp(math.ceil(math.ldexp(bound, self._plan.answer_bits)) + 1, -self._plan.answer_bits)

    def _certified(
        self, state: Evidence, query: Query, values: FloatArray, target: Target, passed: Certificate | None = None
    ) -> Answer:
        """An answer with these values of a question, and its bound."""
        units = query.adding(self._grid(query.selected(values)))
        shown = np.ldexp(units.astype(np.float64), -self._plan.answer_bits)
        bound = self._bound(state, query, shown, passed)
        return Answer(units, "estimate", bound, accuracy=self.show(state, query, units, target))


def _spread(question: Question, total: float | None) -> float:
    """The part of a gap that a question's answers may be off by."""
    low, high = question.range if isinstance(question, Sum) else (0.0, 1.0)
    return (high - low) / 2 if total is not None else max(abs(low), abs(high))
