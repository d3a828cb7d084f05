"""Mechanisms: what becomes of a query, decided from what is public alone.

A mechanism looks at the public state and the query and says what is due: an answer that costs nothing, or a test or a
measurement, which whoever holds the private data makes on the terms that the decision names. It learns from what was
released, and estimates any query from its state. It never sees private data.

The papers' mechanism (:class:`OnlineQueryResponse`: GRU11, algorithm 1; JT12, algorithm 1) tests every query that it
has not answered and learns the value that a hit releases, whatever the construction that keeps its hypothesis. A direct
mechanism (:class:`DirectMeasurement`) measures every query.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from typing import Any, Generic, Literal, Self, TypeVar

import numpy as np
import numpy.typing as npt

from app.constructions.base import Hypothesis, MeasuredQuery
from app.constructions.dumps import Dump
from app.curator.errors import PlanInfeasible, UpdatesExhausted
from app.curator.opening import Opening
from app.curator.plan import Plan, Race
from app.curator.planners.direct import noise_bound
from app.estimation.intervals import Estimates
from app.estimation.tails import Term, reach
from app.measurements.noise import Noise
from app.measurements.record import Measurement, Purchase
from app.measurements.strategies.tables import TableStrategy
from app.measurements.strategy import Strategy
from app.privacy.ledger import Amounts
from app.spaces.errors import InvalidQuery
from app.spaces.partition import Marginal
from app.spaces.queries.degrees import CompiledDegrees
from app.spaces.queries.statistic import CompiledStatistic
from app.spaces.query import Query

#: Where an answer came from: the hypothesis of a construction, an estimate from all that was measured, a measurement
#: made for it, or the session's own first answer to the same query.
Source = Literal["hypothesis", "estimate", "measurement", "cached"]
#: Values in whole units of the query's answer grid, one for each number that it asks for.
Units = npt.NDArray[np.int64]

#: Largest answer of a hypothesis, in grid units. Steps along queries of tiny weights can take a hypothesis far from all
#: data, whose answers have at most 46 bits; differences to noisy values must stay 64-bit integers.
GREATEST_ANSWER = 2**61


#: In place of a value where there is none: a ratio that too few records are left for.
NO_VALUE = -(2**63)
#: Of intervals where nothing is said.
CONFIDENCE = 0.95


@dataclass(frozen=True, slots=True)
class Wish:
    """How well somebody wants to know.

    Attributes:
        within: half the width of the interval, in counts; None where the budget decides.
        confidence: of the interval; None where it is the session's, or ``CONFIDENCE``.
        adaptive: whether the question was chosen by what was released before, so that its interval must be wider.
    """

    within: float | None = None
    confidence: float | None = None
    adaptive: bool = False

    def document(self) -> dict[str, float] | None:
        """What may decide on a measurement, as JSON; None where nothing is wished."""
        # A wider interval may be one that is not good enough.
        told = {"adaptive": self.adaptive or None, "confidence": self.confidence, "within": self.within}
        return {name: value for name, value in told.items() if value is not None} or None

    def over(self, other: Wish) -> Wish:
        """This wish, and where it says nothing the other one."""
        return Wish(
            other.within if self.within is None else self.within,
            other.confidence if self.confidence is None else self.confidence,
            self.adaptive or other.adaptive,
        )

    @property
    def probability(self) -> float:
        """The confidence of the interval."""
        return CONFIDENCE if self.confidence is None else self.confidence


#: Whatever the budget allows.
NO_WISH = Wish()


@dataclass(frozen=True, slots=True, eq=False)
class Measured:
    """What was measured for an answer, or at a session's opening.

    Attributes:
        release: what was counted, with which noise, and what came of it.
        price: what it costs in both sums of the ledger.
        expected: what was expected of the question before, in units of the answer grid, and the standard error of that
            in the same; None at an opening.
    """

    release: Measurement[Strategy]
    price: Amounts
    expected: tuple[Units, int] | None = None

    @property
    def table(self) -> Measurement[TableStrategy]:
        """What was counted of a table.

        Raises:
            ValueError: when it was measured of a graph or a matrix.
        """
        return self.release.of(TableStrategy)

    def document(self) -> dict[str, Any]:
        """As JSON of integers and strings."""
        expected = None
        if self.expected is not None:
            expected = {"standard_error": self.expected[1], "values": self.expected[0].tolist()}
        return {"cost": self.price.document(), "expected": expected, "measurement": self.release.document()}

    @classmethod
    def read(cls, document: Mapping[str, Any]) -> Self:
        """From JSON.

        Raises:
            KeyError, TypeError, ValueError, ArithmeticError, InvalidBudget: when it is none.
        """
        expected, told = None, document["expected"]
        if told is not None:
            values = np.array(told["values"])
            if values.dtype != np.int64 or values.ndim != 1 or type(told["standard_error"]) is not int:
                raise TypeError("what was expected is whole units")
            expected = values, told["standard_error"]
        released = document["measurement"]
        release: Measurement[Strategy]
        if "edges" in released or "degrees" in released or "products" in released or "asked" in released:
            release = Measurement.read(released)
        else:
            release = Measurement.read(released)
        return cls(release, Amounts.read(document["cost"]), expected)


@dataclass(frozen=True, slots=True, eq=False)
class Answer:
    """Released values, where they came from, and the error in counts that each keeps with probability 1 - beta.

    ``measured`` is what was measured for it where that is more than its values; the state has taken it in. ``tested``
    are the counts of cells that a test found to be near enough.
    """

    units: Units
    source: Source
    error_bound: float | None
    unverified: bool = False
    accuracy: Estimates | None = None
    measured: Measured | None = None
    tested: Units | None = None


@dataclass(frozen=True, slots=True, eq=False)
class RoundNoise:
    """Integer noise on the answer grid: its law, and the law's scale in grid units, exact; of ``gaussian`` sigma.

    One of these is one source of noise: a mechanism that goes on with the same noise names the same object, which is
    found at once, where a fraction of many digits takes as long to look up as a round to play.
    """

    law: Literal["laplace", "gaussian"]
    scale: Fraction


@dataclass(frozen=True, slots=True)
class RoundTerms:
    """What a round is played on; all of it is public.

    Attributes:
        noise: that is added to the private values.
        price: what a measurement costs, and a forfeit, in both sums of the ledger.
    """

    noise: RoundNoise
    price: Amounts


@dataclass(frozen=True, slots=True, eq=False)
class Test:
    """The hypothesis' own values are to be held against the private ones.

    Attributes:
        hypothesis: its values.
        threshold: T, in grid units.
        race: the Poisson race that the test is; None for a single comparison.
        terms: its noise and price.
        error_bound: what the answer keeps with probability 1 - beta, a hit or a miss, in counts.
    """

    #: Collectors of tests take classes of this name for their own.
    __test__ = False

    hypothesis: Units
    threshold: int
    race: Race | None
    terms: RoundTerms
    error_bound: float


@dataclass(frozen=True, slots=True, eq=False)
class Measure:
    """Private values are to be released with noise, whatever they are.

    Attributes:
        terms: noise and price.
        error_bound: what the answer keeps with probability 1 - beta, in counts.
        strategy: what is counted, in whole numbers, or the query itself where its own values are measured and the
            answer follows from them and what else is known; None where these values are the answer. Values of queries
            are on the answer grid.
        expected: what the state expects of the query, as :class:`Measured` has it.
        wish: how well the answer is to be known.
    """

    terms: RoundTerms
    error_bound: float | None
    strategy: Strategy | None = None
    expected: tuple[Units, int] | None = None
    wish: Wish = NO_WISH


@dataclass(frozen=True, slots=True, eq=False)
class MarginalTest:
    """The counts of a marginal are to be held against expected ones, all cells together, and measured if they are far.

    What is compared is the sum of all differences, in whole counts; nothing of it is released. What a hit releases is
    the measurement, whose noise is its own.

    Attributes:
        marginal: what is counted.
        counts: what is expected of its cells.
        threshold: T, in counts.
        race: the Poisson race that the test is; None for a single comparison.
        noise: of the test.
        terms: noise of the measurement, and the price of both together.
        expected: of the query, as :class:`Measured` has it.
        wish: how well the answer is to be known.
    """

    marginal: Marginal
    counts: Units
    threshold: int
    race: Race | None
    noise: RoundNoise
    terms: RoundTerms
    expected: tuple[Units, int]
    wish: Wish


#: What is due for a query that the public state does not answer.
Due = Test | Measure | MarginalTest


@dataclass(eq=False)
class State:
    """The public state of a mechanism: what it has used, and in a kind of its own what it knows.

    ``forfeits`` counts those of the updates that were forfeits, which taught nothing.
    """

    updates: int = field(default=0, kw_only=True)
    forfeits: int = field(default=0, kw_only=True)

    def forfeit(self, price: Amounts) -> None:
        """A round was played whose outcome could not be recorded: it counts as a hit and teaches nothing."""
        self.updates += 1
        self.forfeits += 1


@dataclass(eq=False)
class PayingState(State):
    """That of a mechanism whose measurements have prices of their own: among it, what is left to pay with."""

    left: Amounts

    def forfeit(self, price: Amounts) -> None:
        """What the round cost is gone, too."""
        self.left = self.left.minus(price)
        super().forfeit(price)


S = TypeVar("S", bound=State)


class SessionMechanism(ABC, Generic[S]):
    """What every session and release has. States are owned by their holder: what changes one does so in place."""

    #: What a question may take for a while beside a state, as far as that is counted before a session is opened.
    asking_bytes = 0

    @abstractmethod
    def start(self) -> S:
        """The state before the first query."""

    def nbytes(self, updates: int) -> int:
        """About how many bytes a state takes after so many updates; unless overridden there is none to speak of."""
        return 0


class AnsweringMechanism(SessionMechanism[S]):
    """What becomes of a query."""

    @abstractmethod
    def admit(self, query: Query) -> None:
        """Refuse a query that was not promised.

        Raises:
            InvalidQuery: naming what was.
        """

    @abstractmethod
    def decide(self, state: S, query: Query, wish: Wish, leaning: float = 0.0) -> Answer | Due:
        """What is due for a query that was not answered before, or not as well as is wished.

        ``leaning`` is the part by which what is known is taken to be worse than it is: what was recorded was decided
        with numbers that may have had other last digits.

        Raises:
            UpdatesExhausted: when nothing can be.
            PlanInfeasible: when what is wished cannot be had.
        """

    @abstractmethod
    def apply(self, state: S, query: Query, due: Due, units: Units | None) -> Answer:
        """The answer that a round makes, of which ``units`` are what was released; None of a test that released
        nothing. Where the answer is more than what was released the state learns of it here.
        """

    @abstractmethod
    def learn(self, state: S, query: Query, answer: Answer) -> None:
        """Take in a first answer that was recorded, with what was measured or tested for it unless :meth:`apply` has
        taken that in.
        """

    @abstractmethod
    def again(self, state: S, query: Query, given: Units, bound: float | None, wish: Wish) -> Answer | None:
        """The first answer once more; None where it is not known as well as is wished."""

    @abstractmethod
    def accuracy(self, state: S, query: Query, units: Units, wish: Wish) -> Estimates | None:
        """How well values that were given are known by now; None where nothing is known of that."""

    def working_bytes(self, state: S, query: Query) -> int:
        """The most bytes that deciding on a query and learning from it take beside the state."""
        return 0


class Pinning(ABC, Generic[S]):
    """A mechanism that starts from what was measured before the first question."""

    @abstractmethod
    def pin(self, state: S, measured: Measured) -> None:
        """Take in what was measured before the first question; its price is what this session paid for it.

        Raises:
            ValueError: when it is of another data set.
        """

    @abstractmethod
    def purchases(self, state: S) -> Sequence[Purchase[Strategy]]:
        """What is to be measured at the opening, given what was measured before, with the price of each.

        Raises:
            PlanInfeasible: when what the session wishes cannot be paid.
        """


class Dumping(ABC, Generic[S]):
    """A mechanism whose state may take longer to make again than to write down."""

    @abstractmethod
    def dump(self, state: S) -> Dump:
        """What :meth:`load` makes the same state of, but for what was used."""

    @abstractmethod
    def load(self, dump: Dump) -> S:
        """The state of a dump."""


class Hypothetical(ABC, Generic[S]):
    """A mechanism that keeps a hypothesis, which answers by itself."""

    @abstractmethod
    def own(self, state: S, query: Query) -> Units:
        """The hypothesis' own values, whether or not a round is due."""

    @abstractmethod
    def export(self, state: S) -> Hypothesis:
        """The hypothesis as data to look at."""


def _check_counts(query: Query) -> None:
    """Refuse what is no sum of counts.

    Raises:
        InvalidQuery: naming what serves.
    """
    if isinstance(query, CompiledDegrees):
        raise InvalidQuery("degrees are answered by sessions whose mechanism is evidence: open one")
    if isinstance(query, CompiledStatistic):
        raise InvalidQuery(f"a {query.kind} is answered by sessions whose mechanism is evidence or histogram: open one")


class PlannedMechanism(AnsweringMechanism[S], Dumping[S]):
    """What mechanisms have in common whose rounds are all on the terms of the session's plan."""

    def __init__(self, opening: Opening) -> None:
        plan = opening.plan
        assert isinstance(plan, Plan)
        self._plan, self._prior = plan, opening.prior
        self._terms = RoundTerms(RoundNoise(plan.noise, plan.noise_scale_units), plan.price)

    def again(self, state: S, query: Query, given: Units, bound: float | None, wish: Wish) -> Answer | None:
        """A first answer stands: another would be known no better."""
        if wish.within is not None and not query.is_zero and self._arm(query, wish.probability) > wish.within:
            return None
        # The first words may have been nearer to the grid than these are, which compile to the same weights.
        return Answer(given, "cached", None if bound is None else max(bound, self.error_bound(query)))

    def _arm(self, query: Query, confidence: float) -> float:
        """How far the interval of an answer reaches to either side, in counts, when it is first given."""
        raise NotImplementedError

    def _check_within(self, query: Query, wish: Wish) -> None:
        """Refuse a question whose answer would not be known as well as is wished.

        Raises:
            PlanInfeasible: saying what could be had.
        """
        arm = self._arm(query, wish.probability)
        if wish.within is None or arm <= wish.within:
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
        """What every answer to ``query`` keeps with probability 1 - beta over the session, in counts.

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
        """What answers on the grid are within of the private values there, in counts."""
        return self._plan.error_bound


@dataclass(eq=False)
class Learnt(State):
    """What a construction has learnt: its own state."""

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
        _check_counts(query)
        if query.numbers > 1:
            raise InvalidQuery(
                "the session's construction answers one sum at a time: ask for many of a session whose mechanism is "
                "evidence, gaussian, laplace or histogram"
            )
        self.construction.admit(query)

    def decide(self, state: Learnt, query: Query, wish: Wish, leaning: float = 0.0) -> Answer | Test:
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
        self._check_within(query, wish)
        if state.updates >= self._plan.max_updates:
            if not self._has_learnt_all(state):
                raise UpdatesExhausted(
                    "all updates of the plan are used: open another session, or ask with unverified",
                    max_updates=self._plan.max_updates,
                )
            return Answer(self.own(state, query), "hypothesis", bound)
        if not self.construction.has_room(state.hypothesis, query):
            raise UpdatesExhausted(
                "the hypothesis has no room to learn this query, which happens with a probability below beta: open "
                "another session, or ask with unverified",
                updates_used=state.updates,
            )
        plan = self._plan
        return Test(self.own(state, query), plan.threshold_units, plan.race, self._terms, bound)

    def apply(self, state: Learnt, query: Query, due: Due, units: Units | None) -> Answer:
        """What was released, or else the hypothesis' own value."""
        assert isinstance(due, Test)
        if units is None:
            return Answer(due.hypothesis, "hypothesis", due.error_bound)
        return Answer(units, "measurement", due.error_bound)

    def learn(self, state: Learnt, query: Query, answer: Answer) -> None:
        """Make the update that a hit is due."""
        if answer.source == "measurement":
            (value,) = answer.units
            released = math.ldexp(int(value), -self._plan.answer_bits)
            self.construction.update(state.hypothesis, MeasuredQuery(query, released, self._plan.noise_bound))

    def own(self, state: Learnt, query: Query) -> Units:
        """The hypothesis' own value, held within what a round can be played at."""
        value = self.construction.answer(state.hypothesis, query)
        held = min(max(value, -self._farthest), self._farthest)
        return np.array([round(math.ldexp(held, self._plan.answer_bits))], np.int64)

    def nbytes(self, updates: int) -> int:
        """The construction's."""
        return self.construction.nbytes(updates)

    def working_bytes(self, state: Learnt, query: Query) -> int:
        """The construction's."""
        return self.construction.working_bytes(state.hypothesis, query)

    def accuracy(self, state: Learnt, query: Query, units: Units, wish: Wish) -> None:
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


@dataclass(eq=False)
class Released(State):
    """How many numbers were released."""

    numbers: int = 0


class DirectMeasurement(PlannedMechanism[Released]):
    """Each question is measured on its own: nothing is tested, nothing is learnt, and there is no hypothesis.

    Args:
        opening: of the session, whose plan says noise and price.
    """

    def start(self) -> Released:
        """No number was released."""
        return Released()

    def admit(self, query: Query) -> None:
        """Every sum of counts is taken."""
        _check_counts(query)

    def decide(self, state: Released, query: Query, wish: Wish, leaning: float = 0.0) -> Answer | Measure:
        """A measurement; but nothing asked is nothing.

        Raises:
            PlanInfeasible: when a narrower interval is asked for than the noise has.
            UpdatesExhausted: when forfeits have used what the question was to be paid from.
        """
        bound = self.error_bound(query)
        if query.is_zero:
            return Answer(np.zeros(query.numbers, np.int64), "hypothesis", bound)
        self._check_within(query, wish)
        if state.updates >= self._plan.max_updates:
            raise UpdatesExhausted(
                "all measurements of the plan are used, some by rounds that could not be recorded: open another "
                "session",
                max_updates=self._plan.max_updates,
            )
        return Measure(self._terms, bound, wish=wish)

    def apply(self, state: Released, query: Query, due: Due, units: Units | None) -> Answer:
        """What was released, with the interval of noise that nobody has chosen the question by."""
        assert isinstance(due, Measure)
        assert units is not None
        accuracy = self._accuracy(query, units, due.wish, self._arm(query, due.wish.probability))
        return Answer(units, "measurement", due.error_bound, accuracy=accuracy)

    def accuracy(self, state: Released, query: Query, units: Units, wish: Wish) -> Estimates:
        """That of the noise: the plan's standard error, and the interval of the noise's own law.

        Who asks again may have chosen the question among all numbers that were released: each of them has then an equal
        part of what may be missed.
        """
        missed = 1 - wish.probability
        if wish.adaptive:
            missed /= max(1, state.numbers)
        return self._accuracy(query, units, wish, self._arm(query, 1 - missed))

    def _accuracy(self, query: Query, units: Units, wish: Wish, arm: float) -> Estimates:
        plan = self._plan
        error = 0.0 if query.is_zero else plan.standard_error or 0.0
        values = np.ldexp(units.astype(np.float64), -plan.answer_bits)
        arm = 0.0 if query.is_zero else arm
        least, most = (0.0, math.inf) if query.range[0] >= 0 and not self._prior.space.signed else (-math.inf, math.inf)
        return Estimates(
            values,
            standard_errors=np.full(len(values), error),
            lows=np.clip(values - arm, least, most),
            highs=np.clip(values + arm, least, most),
            unbiased=np.ones(len(values), dtype=bool),
            confidence=wish.probability,
        )

    def _arm(self, query: Query, confidence: float) -> float:
        plan = self._plan
        # The least scale whose law is computed; of less noise less reaches as far.
        scale = max(plan.noise_scale_units, Fraction(1, 16)) / (1 << plan.answer_bits)
        noise = Noise(plan.noise, Decimal(scale.numerator) / scale.denominator, plan.answer_bits)
        return reach([Term.of(noise, np.ones(1))], confidence) + self._rounded(query)

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
