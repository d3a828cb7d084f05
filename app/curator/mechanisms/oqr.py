"""The papers' mechanism (GRU11, algorithm 1; JT12, algorithm 1): every query that was not answered is tested, and the
value that a hit releases is learnt, whatever the construction that keeps the hypothesis.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from app.constructions.base import Hypothesis, MeasuredQuery
from app.constructions.dumps import Dump
from app.curator.errors import UpdatesExhausted
from app.curator.mechanisms.planned import PlannedMechanism
from app.curator.mechanisms.protocol import (
    GREATEST_ANSWER,
    Answer,
    Due,
    Hypothetical,
    State,
    Target,
    Test,
    Units,
)
from app.curator.opening import Opening
from app.spaces.errors import InvalidQuery
from app.spaces.query import Query, linear


@dataclass(eq=False)
class Learnt(State):
    """The state of a session: that of its construction."""

    hypothesis: Any


class OnlineQueryResponse(PlannedMechanism[Learnt], Hypothetical[Learnt]):
    """The papers' mechanism over one of their constructions.

    Args:
        opening: of the session, which says the construction, the prior it starts from and the plan.
    """

    def __init__(self, opening: Opening) -> None:
        super().__init__(opening)
        self.construction = opening.construction()
        self._farthest = math.ldexp(GREATEST_ANSWER, -self._plan.answer_bits)

    def start(self) -> Learnt:
        """The construction's start."""
        return Learnt(self.construction.start())

    def admit(self, query: Query) -> None:
        """Refuse a query outside the class that the construction was promised: many sums at once, of whatever class."""
        super().admit(query)
        if query.numbers > 1:
            raise InvalidQuery(
                "the session's construction answers one sum at a time: ask for many of a session whose mechanism is "
                "evidence, gaussian, laplace or histogram"
            )
        self.construction.admit(linear(query))

    def decide(self, state: Learnt, query: Query, target: Target, slack: float = 0.0) -> Answer | Test:
        """A test; but nothing asked is nothing, and after the last update of a guaranteed plan the hypothesis is within
        its bound untested.

        Raises:
            PlanInfeasible: when an interval is asked for.
            UpdatesExhausted: no update is left to make in a best-effort session, or in one that was guaranteed before
                forfeits used them; or the hypothesis has no room for one.
        """
        bound = self.error_bound(query)
        if query.is_zero:
            return Answer(np.zeros(1, np.int64), "hypothesis", bound)
        self._check_within(query, target)
        if state.updates >= self._plan.max_updates:
            if not self._has_learnt_all(state):
                raise UpdatesExhausted(
                    "all updates of the plan are used: open another session, or ask with unverified",
                    max_updates=self._plan.max_updates,
                )
            return Answer(self.own(state, query), "hypothesis", bound)
        if not self.construction.has_room(state.hypothesis, linear(query)):
            raise UpdatesExhausted(
                "the hypothesis has no room to learn this query, which happens with a probability below beta: open "
                "another session, or ask with unverified",
                updates_used=state.updates,
            )
        plan = self._plan
        return Test(self.own(state, query), plan.threshold_units, plan.race, self._noise, self._price, bound)

    def apply(self, state: Learnt, query: Query, due: Due, units: Units | None) -> Answer:
        """Give the released value, or else the hypothesis' own."""
        assert isinstance(due, Test)
        if units is None:
            return Answer(due.hypothesis, "hypothesis", due.error_bound)
        return Answer(units, "measurement", due.error_bound)

    def learn(self, state: Learnt, query: Query, answer: Answer) -> None:
        """Make the update that a hit is due."""
        if answer.source == "measurement":
            (value,) = answer.units
            released = math.ldexp(int(value), -self._plan.answer_bits)
            self.construction.update(state.hypothesis, MeasuredQuery(linear(query), released, self._plan.noise_bound))

    def own(self, state: Learnt, query: Query) -> Units:
        """The hypothesis' own value, held within what a round can be played at."""
        value = self.construction.answer(state.hypothesis, linear(query))
        held = min(max(value, -self._farthest), self._farthest)
        return np.array([round(math.ldexp(held, self._plan.answer_bits))], np.int64)

    def nbytes(self, updates: int) -> int:
        """The construction's."""
        return self.construction.nbytes(updates)

    def working_bytes(self, state: Learnt, query: Query) -> int:
        """The construction's."""
        return self.construction.working_bytes(state.hypothesis, linear(query))

    def show(self, state: Learnt, query: Query, units: Units, target: Target) -> None:
        """Nothing is known of a value but its bound."""

    def _arm(self, query: Query, confidence: float) -> float:
        return math.inf

    def dump(self, state: Learnt) -> Dump:
        """The construction's own state."""
        return self.construction.dump(state.hypothesis)

    def load(self, dump: Dump) -> Learnt:
        """The construction's own state."""
        return Learnt(self.construction.load(dump))

    def export(self, state: Learnt) -> Hypothesis:
        """The construction's hypothesis."""
        return self.construction.export(state.hypothesis)

    def _has_learnt_all(self, state: Learnt) -> bool:
        """Whether as many updates were learnt as there can be, so that what is left to ask is within its bound.

        A forfeit uses an update and teaches nothing: it does not count.
        """
        bound = self._plan.update_bound
        return self._plan.guaranteed and bound is not None and state.updates - state.forfeits >= bound
