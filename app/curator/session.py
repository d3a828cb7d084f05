"""The state of a session, a function of its transcript alone.

The same machine answers queries on the server and re-derives them in an audit. It never sees private data: where a
round must be played, :meth:`Session.consider` hands out the hypothesis' answer on the grid and whoever holds the
data plays it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from app.constructions.base import Measurement
from app.constructions.dumps import Dump
from app.curator.answers import FirstAnswers
from app.curator.errors import QueriesExhausted, UpdatesExhausted
from app.curator.opening import Opening
from app.spaces.query import Query

Source = Literal["hypothesis", "measurement", "cached"]

#: Largest answer of a hypothesis, in grid units. Steps along queries of tiny weights can take a hypothesis far from all
#: data, whose answers have at most 46 bits; differences to noisy values must stay 64-bit integers.
GREATEST_ANSWER = 2**61
#: Unverified answers that a session gives, where its plan has fewer queries than this. They are free, and each is a
#: record that is kept: without an end to them one session could fill the disk.
UNVERIFIED = 10_000
#: What a session counts, beside its answers and its hypothesis.
_COUNTERS = ("sequence", "queries_asked", "updates_used", "forfeits", "unverified_given")


@dataclass(frozen=True, slots=True)
class Answer:
    """A released value in counts, where it came from, and the error it keeps with probability 1 - beta."""

    value: float
    source: Source
    error_bound: float | None
    unverified: bool = False


@dataclass(frozen=True, slots=True)
class RoundDue:
    """A round must be played: ``hypothesis`` is c on the answer grid, ``error_bound`` what either answer keeps."""

    hypothesis: int
    error_bound: float


class Session:
    """Hypothesis, counters and the answers given so far."""

    def __init__(self, opening: Opening, *, state: Dump | None = None) -> None:
        """A new session, or with ``state`` one that goes on from where another of the same opening was dumped.

        Raises:
            LookupError, TypeError, ValueError: when the state is not one of such a session.
        """
        self.opening, self.plan = opening, opening.plan
        self.dataset = opening.prior
        self.construction = opening.construction()
        self.sequence = 0
        self.queries_asked = 0
        self.updates_used = 0
        #: How many of these were forfeits, which taught the hypothesis nothing.
        self.forfeits = 0
        self.unverified_given = 0
        self._given = FirstAnswers()
        self._farthest = self.real(GREATEST_ANSWER)
        self.hypothesis = self.construction.start() if state is None else self._load(state)

    @property
    def known_bytes(self) -> int:
        """About what the answers given so far take in memory."""
        return self._given.nbytes

    @property
    def queries_left(self) -> int:
        """Queries that may still be asked."""
        return self.plan.max_queries - self.queries_asked

    @property
    def updates_left(self) -> int:
        """Updates that may still be made."""
        return self.plan.max_updates - self.updates_used

    @property
    def unverified_left(self) -> int:
        """Unverified answers that may still be given."""
        return max(self.plan.max_queries, UNVERIFIED) - self.unverified_given

    @property
    def settled(self) -> bool:
        """Whether as many updates were learnt as there can be, so that what is left to ask is within its bound.

        A forfeit uses an update and teaches nothing: it does not count.
        """
        bound = self.plan.update_bound
        return self.plan.guaranteed and bound is not None and self.updates_used - self.forfeits >= bound

    def grid(self, value: float) -> int:
        """The nearest whole number of answer-grid units."""
        return round(math.ldexp(value, self.plan.answer_bits))

    def real(self, units: int) -> float:
        """Grid units in counts."""
        return math.ldexp(units, -self.plan.answer_bits)

    def error_bound(self, query: Query) -> float:
        """What every answer to ``query`` keeps with probability 1 - beta over the session.

        T + L, what rounding the weights can move on all of the mass, and half a grid unit where the exact
        value is finer than the grid. Of a zero query the rounding alone: weights too small for the grid are not
        asked weights of zero.
        """
        return self._bound(query, query.rounding)

    def largest_bound(self, query: Query) -> float:
        """The largest that :meth:`error_bound` can be of a query with these weights, however it was spelled.

        A transcript keeps the weights as they were compiled, which does not tell what they were rounded from.
        """
        return self._bound(query, self.dataset.space.most_rounding)

    def _bound(self, query: Query, rounding: float) -> float:
        moved = rounding * self.dataset.mass_bound
        if query.is_zero:
            return moved
        bound = self.plan.error_bound + moved
        if query.grid_bits + self.dataset.space.data_bits > self.plan.answer_bits:
            bound += self.real(1) / 2
        return bound

    def consider(self, query: Query, *, unverified: bool = False) -> Answer | RoundDue:
        """The answer where the public state has one, else the round that must be played.

        Raises:
            InvalidQuery: the construction was promised other queries.
            QueriesExhausted: all queries of the plan were asked, or all unverified answers given.
            UpdatesExhausted: no update is left to make in a best-effort session, or in one that was guaranteed before
                forfeits used them; or the hypothesis has no room for one.
        """
        self.construction.admit(query)
        if unverified:
            if self.unverified_left == 0:
                raise QueriesExhausted(
                    "all unverified answers of the session were given: download its hypothesis, which answers every "
                    "query, or open another session",
                    max_unverified=self.unverified_given,
                )
            return Answer(self._ask_hypothesis(query), "hypothesis", None, unverified=True)
        given = self._given.get(query.digest)
        if given is not None:
            # The first words may have been nearer to the grid than these are, which compile to the same weights.
            bound = None if given[1] is None else max(given[1], self.error_bound(query))
            return Answer(given[0], "cached", bound)
        if self.queries_left == 0:
            raise QueriesExhausted(
                "all queries of the plan have been asked: open another session, or ask with unverified",
                max_queries=self.plan.max_queries,
            )
        if query.is_zero:
            return Answer(0.0, "hypothesis", self.error_bound(query))
        if self.updates_left == 0:
            if not self.settled:
                raise UpdatesExhausted(
                    "all updates of the plan are used: open another session, or ask with unverified",
                    max_updates=self.plan.max_updates,
                )
            return Answer(self._ask_hypothesis(query), "hypothesis", self.error_bound(query))
        if not self.construction.has_room(self.hypothesis, query):
            raise UpdatesExhausted(
                "the hypothesis has no room to learn this query, which happens with a probability below beta: open "
                "another session, or ask with unverified",
                updates_used=self.updates_used,
            )
        return RoundDue(self._hypothesis_units(query), self.error_bound(query))

    def _ask_hypothesis(self, query: Query) -> float:
        return self.real(self._hypothesis_units(query))

    def _hypothesis_units(self, query: Query) -> int:
        """The hypothesis' answer on the answer grid, held within what a round can be played at."""
        value = self.construction.answer(self.hypothesis, query)
        return self.grid(min(max(value, -self._farthest), self._farthest))

    def record(self, query: Query, answer: Answer) -> None:
        """Take a recorded answer into the state: counters, first answers, and on a measurement the update."""
        if answer.unverified:
            self.skip(unverified=1)
            return
        if answer.source == "cached":
            self.skip(cached=1)
            return
        self.recall(query.digest, answer.value, answer.error_bound)
        if answer.source == "measurement":
            self.learn(query, answer.value)

    def recall(self, digest: bytes, value: float, error_bound: float | None) -> None:
        """Count a first answer, known by its query's digest."""
        self.sequence += 1
        self.queries_asked += 1
        self._given.add(digest, value, error_bound)

    def recall_all(self, answers: Sequence[tuple[bytes, float, float | None]]) -> None:
        """The same of many answers at once: digest, value and error bound of each."""
        self.sequence += len(answers)
        self.queries_asked += len(answers)
        self._given.add_all(answers)

    def pass_over(self, answers: int) -> None:
        """Count so many first answers without keeping them: such a state is looked at, and asked nothing."""
        self.sequence += answers
        self.queries_asked += answers

    def skip(self, *, cached: int = 0, unverified: int = 0) -> None:
        """Count entries that move nothing."""
        self.sequence += cached + unverified
        self.unverified_given += unverified

    def learn(self, query: Query, value: float) -> None:
        """Make the update that a measurement is due."""
        self.updates_used += 1
        self.construction.update(self.hypothesis, Measurement(query, value, self.plan.noise_bound))

    def forfeit(self) -> None:
        """A round whose outcome could not be recorded counts as a hit; the hypothesis learns nothing."""
        self.sequence += 1
        self.updates_used += 1
        self.forfeits += 1

    def dump(self) -> Dump:
        """The whole state; its arrays are the session's own, to be written before it moves on."""
        digests, told = self._given.arrays()
        own = Dump({"digests": digests, "answers": told}, {name: getattr(self, name) for name in _COUNTERS})
        return own | self.construction.dump(self.hypothesis).within("hypothesis")

    def _load(self, dump: Dump) -> Any:
        """Take over counters and answers; the hypothesis."""
        self._given = FirstAnswers.of(dump.arrays["digests"], dump.arrays["answers"])
        for name in _COUNTERS:
            setattr(self, name, int(dump.words[name]))
        return self.construction.load(dump.part("hypothesis"))
