"""The state of a session, a function of its transcript alone.

The same machine answers queries on the server and re-derives them in an audit. It never sees private data: where a
test must be played, :meth:`Session.consider` hands out the hypothesis' own values and the terms, and whoever holds the
data plays it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from copy import copy
from typing import Any

import numpy as np

from app.constructions.base import Hypothesis
from app.constructions.dumps import Dump
from app.curator.answers import FirstAnswers
from app.curator.errors import QueriesExhausted
from app.curator.expectation import told
from app.curator.mechanisms.protocol import (
    NO_TARGET,
    NO_VALUE,
    Answer,
    AnsweringMechanism,
    Due,
    Dumping,
    Hypothetical,
    Measured,
    Pinning,
    State,
    Target,
    Units,
)
from app.curator.mechanisms.recorded import RecordedMechanism
from app.curator.mechanisms.serving import mechanism_of
from app.curator.opening import Opening
from app.declarations.errors import InvalidRequest
from app.estimation.intervals import Estimates
from app.measurements.record import Purchase
from app.measurements.strategy import Strategy
from app.privacy.ledger import NOTHING, Amounts, total
from app.spaces.lazy import lazy
from app.spaces.query import Query
from app.spaces.tensor import FloatArray

#: Unverified answers that a session gives, where its plan has fewer queries than this. They are free, and each is a
#: record that is kept: without an end to them one session could fill the disk.
UNVERIFIED = 10_000


class Session:
    """Mechanism, its state, counters and the answers given so far."""

    def __init__(self, opening: Opening, *, state: Dump | None = None) -> None:
        """A new session, or with ``state`` one that goes on from where another of the same opening was dumped.

        Raises:
            LookupError, TypeError, ValueError: when the state is not one of such a session.
        """
        self.opening, self.plan = opening, opening.plan
        self.dataset = opening.prior
        self.mechanism = mechanism_of(opening)
        self.sequence = 0
        self.queries_asked = 0
        self.unverified_given = 0
        if state is None:
            self._given = FirstAnswers()
            self.state: State = self.mechanism.start()
        else:
            self._load(state)

    def pin(self, measured: Measured) -> None:
        """Take in what was measured before the first question, in the order of the opening."""
        assert isinstance(self.mechanism, Pinning)
        self.mechanism.pin(self.state, measured)

    @lazy
    def _answering(self) -> AnsweringMechanism[Any]:
        """The mechanism, which answers.

        Raises:
            InvalidRequest: when it is a release's.
        """
        if not isinstance(self.mechanism, AnsweringMechanism):
            raise InvalidRequest(
                "a release is asked nothing: read its data, or open a session, which starts from what was measured for "
                "it"
            )
        return self.mechanism

    @property
    def _keeping(self) -> Dumping[Any]:
        """The mechanism, whose state is written down.

        Raises:
            ValueError: when it is made of the transcript alone.
        """
        if not isinstance(self.mechanism, Dumping):
            raise ValueError("the state of such a session is made of its transcript")
        return self.mechanism

    def count_release(self) -> None:
        """Count an entry of a release, whose measurement was taken in as those of an opening are."""
        self.sequence += 1
        self.state.updates += 1

    def purchases(self) -> Sequence[Purchase[Strategy]]:
        """The measurements due at the opening, with the price of each."""
        if not isinstance(self.mechanism, Pinning):
            return []
        found = self.mechanism.purchases(self.state)
        self.plan.holds.minus(total(each.price for each in found))  # refuses to spend more than is held
        return found

    def expected(self, made: Sequence[Measured]) -> dict[str, Any]:
        """What is foretold of a session that answers from evidence and was asked nothing, as JSON; nothing of others.

        Args:
            made: what was measured at the opening, which the session takes in.
        """
        if not isinstance(self.mechanism, RecordedMechanism):
            return {}
        paid = self.plan.paid(self.opening.dataset, self.opening.request)
        return told(self.mechanism.expectation(self.state, made), paid)

    @property
    def updates_used(self) -> int:
        """Updates so far, forfeits among them."""
        return self.state.updates

    @property
    def known_bytes(self) -> int:
        """About what the answers given so far take in memory."""
        return self._given.nbytes

    @property
    def held_bytes(self) -> int | None:
        """About what the state takes in memory now; None where :meth:`.SessionMechanism.nbytes` says it as well."""
        return self.mechanism.held_bytes(self.state)

    @property
    def queries_left(self) -> int:
        """Queries that may still be asked."""
        return self.plan.max_queries - self.queries_asked

    @property
    def updates_left(self) -> int:
        """Updates that may still be made."""
        return self.plan.max_updates - self.state.updates

    @property
    def unverified_left(self) -> int:
        """Unverified answers that may still be given."""
        return max(self.plan.max_queries, UNVERIFIED) - self.unverified_given

    def grid(self, value: float) -> int:
        """The nearest whole number of units of the session's answer grid."""
        return round(math.ldexp(value, self.plan.answer_bits))

    def real(self, units: int) -> float:
        """Units of the session's answer grid in counts."""
        return math.ldexp(units, -self.plan.answer_bits)

    def bits(self, query: Query) -> int:
        """The bits of the grid that a query's answers live on."""
        return self.plan.answer_bits if query.answer_bits is None else query.answer_bits

    def values(self, query: Query, units: Units) -> list[float | None]:
        """A query's answers as numbers; None where there is none."""
        found = query.told(np.ldexp(units.astype(np.float64), -self.bits(query))).tolist()
        return [None if each == NO_VALUE else value for each, value in zip(units.tolist(), found, strict=True)]

    def units(self, query: Query, values: Sequence[float | None]) -> Units:
        """The nearest whole numbers of units of a query's answer grid.

        Raises:
            OverflowError: when one is too large.
        """
        bits = self.bits(query)
        return np.array([NO_VALUE if v is None else round(math.ldexp(v, bits)) for v in values], np.int64)

    def consider(
        self, query: Query, *, unverified: bool = False, target: Target = NO_TARGET, slack: float = 0.0
    ) -> Answer | Due:
        """The answer where the public state has one, else the test or measurement that must be made.

        What was answered before is answered again as it was, but where it is to be known better than it is.

        Raises:
            InvalidQuery: other queries were promised.
            QueriesExhausted: all queries of the plan were asked, or all unverified answers given.
            UpdatesExhausted: the mechanism has nothing left to answer with.
            InvalidRequest: an unverified answer is asked of a mechanism that keeps no hypothesis.
        """
        mechanism = self._answering
        mechanism.admit(query)
        if unverified:
            if self.unverified_left == 0:
                raise QueriesExhausted(
                    "all unverified answers of the session were given: download its hypothesis, which answers every "
                    "query, or open another session",
                    max_unverified=self.unverified_given,
                )
            if not isinstance(mechanism, Hypothetical):
                raise InvalidRequest(f"{mechanism.instead}: leave unverified out")
            return Answer(mechanism.own(self.state, query), "hypothesis", None, unverified=True)
        given = self._given.get(query.digest)
        again = None if given is None else mechanism.again(self.state, query, *given, target)
        if again is not None:
            return again
        if self.queries_left == 0:
            also = ", or ask with unverified" if isinstance(mechanism, Hypothetical) else ""
            raise QueriesExhausted(
                f"all queries of the plan have been asked: open another session{also}",
                max_queries=self.plan.max_queries,
            )
        return mechanism.decide(self.state, query, target, slack)

    def apart(self) -> Session:
        """The session as it stands, to see what becomes of a question (:meth:`consider`) of which nothing is to be
        left; it must be told nothing.
        """
        made = copy(self)
        made.state = self._answering.apart(self.state)
        return made

    def pass_by(self, query: Query, due: Answer | Due) -> None:
        """Take it that a question was answered so, whatever was released: its place is used and what it costs is spent,
        but nothing is learnt. Of a session apart alone.
        """
        if not isinstance(due, Answer) or due.source != "cached":
            self.queries_asked += 1
            self._answering.pass_by(self.state, query, due)

    def foretold(self, query: Query, due: Due) -> FloatArray | None:
        """How far the intervals of a question's answers are to reach to either side if what is due releases them; NaN
        of those of which that is not known, None where it is known of none.
        """
        return self._answering.foretold(self.state, query, due)

    def apply(self, query: Query, due: Due, units: Units | None) -> Answer:
        """The answer that a round makes, which is then to be recorded: of what was released, or of a miss."""
        return self._answering.apply(self.state, query, due, units)

    def accuracy(self, query: Query, answer: Answer, target: Target = NO_TARGET) -> Estimates | None:
        """How well an answer's values are known; None where nothing is known of that."""
        if answer.accuracy is not None or answer.unverified:
            return answer.accuracy
        return self._answering.show(self.state, query, answer.units, target)

    def working_bytes(self, query: Query) -> int:
        """The most bytes that deciding on a query and learning from it take beside the state."""
        return self._answering.working_bytes(self.state, query)

    def record(self, query: Query, answer: Answer, *, read: bool = False) -> None:
        """Take a recorded answer into the state: counters, first answers, and what was measured or tested for it.

        ``read`` where it was read from a transcript: :meth:`apply` has taken in nothing of it.
        """
        if answer.unverified:
            self.skip(unverified=1)
            return
        if answer.source == "cached":
            self.skip(cached=1)
            return
        self.sequence += 1
        self.queries_asked += 1
        self._given.add(query.digest, answer.units, answer.error_bound)
        if read or answer.measured is None:
            self._answering.learn(self.state, query, answer)
        if answer.source == "measurement":
            self.state.updates += 1

    def recall_all(self, answers: Sequence[tuple[bytes, bytes, float | None]]) -> None:
        """Count first answers that were recorded: digest of the query, units (little-endian int64) and error bound of
        each. What they taught is told by :meth:`learn`.
        """
        self.sequence += len(answers)
        self.queries_asked += len(answers)
        self._given.add_all(answers)

    def pass_over(self, answers: int) -> None:
        """Count so many first answers without keeping them: such a state is looked at, and asked nothing."""
        self.sequence += answers
        self.queries_asked += answers

    def skip(self, *, cached: int = 0, unverified: int = 0) -> None:
        """Count entries that change nothing."""
        self.sequence += cached + unverified
        self.unverified_given += unverified

    def learn(self, query: Query, units: Units) -> None:
        """Learn what a measurement teaches."""
        self._answering.learn(self.state, query, Answer(units, "measurement", None))
        self.state.updates += 1

    def forfeit(self, price: Amounts = NOTHING) -> None:
        """A round whose outcome could not be recorded counts as a hit; the hypothesis learns nothing.

        ``price`` is what it cost, where that is not the plan's.
        """
        self.sequence += 1
        self.state.forfeit(price)

    def exported(self) -> Hypothesis:
        """The hypothesis as data to look at.

        Raises:
            InvalidRequest: when there is none.
        """
        if not isinstance(self.mechanism, Hypothetical):
            raise InvalidRequest("the session keeps no hypothesis: every question is measured on its own")
        return self.mechanism.export(self.state)

    def dump(self) -> Dump:
        """The whole state; its arrays are the session's own, to be written before it goes on."""
        counters = {
            "sequence": self.sequence,
            "queries_asked": self.queries_asked,
            "unverified_given": self.unverified_given,
            "updates_used": self.state.updates,
            "forfeits": self.state.forfeits,
        }
        own = Dump(self._given.arrays(), counters)
        return own | self._keeping.dump(self.state).within("hypothesis")

    def _load(self, dump: Dump) -> None:
        self._given = FirstAnswers.of(dump.arrays)
        self.sequence = int(dump.words["sequence"])
        self.queries_asked = int(dump.words["queries_asked"])
        self.unverified_given = int(dump.words["unverified_given"])
        self.state = self._keeping.load(dump.part("hypothesis"))
        self.state.updates, self.state.forfeits = int(dump.words["updates_used"]), int(dump.words["forfeits"])


def units_of(recorded: bytes) -> Units:
    """Values as a store keeps them: little-endian int64."""
    return np.frombuffer(recorded, "<i8").astype(np.int64, copy=False)
