"""Direct mechanisms: every query is measured, and nothing is learnt."""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache, partial

import numpy as np

from app.constructions.dumps import Dump
from app.curator.errors import UpdatesExhausted
from app.curator.mechanisms.planned import PlannedMechanism
from app.curator.mechanisms.protocol import (
    Answer,
    Due,
    Measure,
    State,
    Target,
    Units,
)
from app.curator.opening import Opening
from app.curator.planners.direct import noise_bound
from app.estimation.intervals import Estimates
from app.estimation.tails import Term, reach
from app.measurements.noise import Noise
from app.spaces.query import Query
from app.spaces.tensor import FloatArray


@dataclass(eq=False)
class Released(State):
    """How many numbers were released."""

    numbers: int = 0


class DirectMeasurement(PlannedMechanism[Released]):
    """Each question is measured on its own: nothing is tested, nothing is learnt, and there is no hypothesis.

    Args:
        opening: of the session, whose plan says noise and price.
    """

    def __init__(self, opening: Opening) -> None:
        super().__init__(opening)
        plan = self._plan
        # The least scale whose law is computed; of less noise less reaches as far.
        scale = max(plan.noise_scale_units, Fraction(1, 16)) / (1 << plan.answer_bits)
        noise = Noise(plan.noise, Decimal(scale.numerator) / scale.denominator, plan.answer_bits)
        # Most questions are asked with the same confidence.
        self._reach = lru_cache(256)(partial(reach, [Term.of(noise, np.ones(1))]))

    def start(self) -> Released:
        """No number was released."""
        return Released()

    def decide(self, state: Released, query: Query, target: Target, slack: float = 0.0) -> Answer | Measure:
        """A measurement; but nothing asked is nothing.

        Raises:
            PlanInfeasible: when a narrower interval is asked for than the noise has.
            UpdatesExhausted: when forfeits have used what the question was to be paid from.
        """
        bound = self.error_bound(query)
        if query.is_zero:
            return Answer(np.zeros(query.numbers, np.int64), "hypothesis", bound)
        self._check_within(query, target)
        if state.updates >= self._plan.max_updates:
            raise UpdatesExhausted(
                "all measurements of the plan are used, some by rounds that could not be recorded: open another "
                "session",
                max_updates=self._plan.max_updates,
            )
        return Measure(self._noise, self._price, bound, target)

    def apply(self, state: Released, query: Query, due: Due, units: Units | None) -> Answer:
        """The released values, with the interval of noise that nobody has chosen the question by."""
        assert isinstance(due, Measure)
        assert units is not None
        accuracy = self._accuracy(query, units, due.target, self._arm(query, due.target.probability))
        return Answer(units, "measurement", due.error_bound, accuracy=accuracy)

    def show(self, state: Released, query: Query, units: Units, target: Target) -> Estimates:
        """That of the noise: the plan's standard error, and the interval of the noise's own law.

        Who asks again may have chosen the question among all numbers that were released: each of them has then an equal
        part of what may be missed.
        """
        missed = 1 - target.probability
        if target.adaptive:
            missed /= max(1, state.numbers)
        return self._accuracy(query, units, target, self._arm(query, 1 - missed))

    def foretold(self, state: Released, query: Query, due: Due) -> FloatArray:
        """As far as the noise."""
        assert isinstance(due, Measure)
        return np.full(query.numbers, self._arm(query, due.target.probability))

    def _accuracy(self, query: Query, units: Units, target: Target, arm: float) -> Estimates:
        plan = self._plan
        error = 0.0 if query.is_zero else plan.standard_error or 0.0
        values = np.ldexp(units.astype(np.float64), -plan.answer_bits)
        arm = 0.0 if query.is_zero else arm
        lows, highs = values - arm, values + arm
        if query.range[0] >= 0 and not self._prior.space.signed:
            # Of a value below zero it is that of a measured zero, from the value on, and no wider than others.
            highs = np.where(values < 0, np.maximum(np.minimum(arm, highs + arm), 0.0), highs)
            lows = np.minimum(values, np.maximum(lows, 0.0))
        return Estimates(
            values,
            standard_errors=np.full(len(values), error),
            lows=lows,
            highs=highs,
            unbiased=np.ones(len(values), dtype=bool),
            confidence=target.probability,
        )

    def _arm(self, query: Query, confidence: float) -> float:
        return self._reach(confidence) + self._rounded(query)

    def learn(self, state: Released, query: Query, answer: Answer) -> None:
        """More numbers were released."""
        if answer.source == "measurement":
            state.numbers += len(answer.units)

    def dump(self, state: Released) -> Dump:
        """How many numbers were released."""
        return Dump(words={"numbers": state.numbers})

    def load(self, dump: Dump) -> Released:
        """How many numbers were released."""
        return Released(int(dump.words["numbers"]))

    def _within(self, query: Query) -> float:
        """The bound of the noise; of each question's part of beta every number that it asks for has a part."""
        if query.numbers == 1:
            return self._plan.error_bound
        plan = self._plan
        units = noise_bound(plan.noise, plan.noise_scale_units, plan.max_queries * query.numbers, plan.beta)
        return math.ldexp(units, -plan.answer_bits)
