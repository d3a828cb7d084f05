"""Mechanisms: what becomes of a query, decided from what is public alone.

A mechanism looks at the public state and the query and says what is due: an answer that costs nothing, or a test or a
measurement, which whoever holds the private data makes on the terms that the decision names. It learns from what was
released, and estimates any query from its state. It never sees private data.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Generic, Literal, Self, TypeVar

import numpy as np
import numpy.typing as npt

from app.constructions.base import Hypothesis
from app.constructions.dumps import Dump
from app.curator.plan import Race
from app.estimation.intervals import Estimates
from app.measurements.record import Measurement, Purchase
from app.measurements.strategies.tables import TableStrategy
from app.measurements.strategy import Strategy
from app.privacy.ledger import Amounts
from app.spaces.query import Query
from app.spaces.tensor import FloatArray

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
class Target:
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
        """The target as JSON, where it may decide on a measurement; None where none is set."""
        # A wider interval may be one that is not good enough.
        fields = {"adaptive": self.adaptive or None, "confidence": self.confidence, "within": self.within}
        return {name: value for name, value in fields.items() if value is not None} or None

    def over(self, other: Target) -> Target:
        """This target, and where it says nothing the other one."""
        return Target(
            other.within if self.within is None else self.within,
            other.confidence if self.confidence is None else self.confidence,
            self.adaptive or other.adaptive,
        )

    @property
    def probability(self) -> float:
        """The confidence of the interval."""
        return CONFIDENCE if self.confidence is None else self.confidence


#: Whatever the budget allows.
NO_TARGET = Target()


@dataclass(frozen=True, slots=True, eq=False)
class Measured:
    """A measurement for an answer, or at a session's opening.

    Attributes:
        measurement: what was counted, with which noise, and what came of it.
        price: what it costs in both sums of the ledger.
        expected: what was expected of the question before, in units of the answer grid, and the standard error of that
            in the same; None at an opening.
    """

    measurement: Measurement[Strategy]
    price: Amounts
    expected: tuple[Units, int] | None = None

    @property
    def table(self) -> Measurement[TableStrategy]:
        """The measurement of a table.

        Raises:
            ValueError: when it was measured of a graph or a matrix.
        """
        return self.measurement.of(TableStrategy)

    def document(self) -> dict[str, Any]:
        """As JSON of integers and strings."""
        expected = None
        if self.expected is not None:
            expected = {"standard_error": self.expected[1], "values": self.expected[0].tolist()}
        return {"cost": self.price.document(), "expected": expected, "measurement": self.measurement.document()}

    @classmethod
    def read(cls, document: Mapping[str, Any]) -> Self:
        """From JSON.

        Raises:
            KeyError, TypeError, ValueError, ArithmeticError, InvalidBudget: when it is none.
        """
        expected, stated = None, document["expected"]
        if stated is not None:
            values = np.array(stated["values"])
            if values.dtype != np.int64 or values.ndim != 1 or type(stated["standard_error"]) is not int:
                raise TypeError("what was expected is whole units")
            expected = values, stated["standard_error"]
        return cls(Measurement.read(document["measurement"]), Amounts.read(document["cost"]), expected)


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


@dataclass(frozen=True, slots=True, eq=False)
class Test:
    """The hypothesis' own values are to be held against the private ones.

    Attributes:
        hypothesis: its values.
        threshold: T, in grid units.
        race: the Poisson race that the test is; None for a single comparison.
        noise: of the test.
        price: what a hit costs, and a forfeit, in both sums of the ledger.
        error_bound: what the answer keeps with probability 1 - beta, a hit or a miss, in counts.
    """

    #: Collectors of tests take classes of this name for their own.
    __test__ = False

    hypothesis: Units
    threshold: int
    race: Race | None
    noise: RoundNoise
    price: Amounts
    error_bound: float


@dataclass(frozen=True, slots=True, eq=False)
class Measure:
    """The private values of the query are to be released with noise, and are the answer.

    Attributes:
        noise: of each value.
        price: what that costs in both sums of the ledger.
        error_bound: what the answer keeps with probability 1 - beta, in counts.
        target: how well the answer is to be known.
    """

    noise: RoundNoise
    price: Amounts
    error_bound: float | None
    target: Target


@dataclass(frozen=True, eq=False)
class Buy:
    """A measurement is to be made, from which the answer follows together with what else is known.

    Attributes:
        purchase: what is measured, the noise and the price.
        expected: what the state expects of the query, as :class:`Measured` has it.
        target: how well the answer is to be known.
    """

    purchase: Purchase[Strategy]
    expected: tuple[Units, int] | None
    target: Target

    @property
    def price(self) -> Amounts:
        """Its cost, and a forfeit's."""
        return self.purchase.price

    def measured(self, units: Units) -> Measured:
        """The measurement with these released values."""
        purchase = self.purchase
        return Measured(Measurement(purchase.strategy, purchase.noise, units), purchase.price, self.expected)


@dataclass(frozen=True, eq=False)
class MarginalTest(Buy):
    """The counts of a marginal are to be held against expected ones, all cells together, and measured if they are far.

    What is compared is the sum of all differences, in whole counts; nothing of it is released. What a hit releases is
    the measurement, whose noise is its own; its price is that of both together.

    Attributes:
        counts: what is expected of its cells.
        threshold: T, in counts.
        race: the Poisson race that the test is; None for a single comparison.
        noise: of the test.
        fresh: the noise of the measurement.
    """

    counts: Units
    threshold: int
    race: Race | None
    noise: RoundNoise
    fresh: RoundNoise


#: What is due for a query that the public state does not answer.
Due = Test | Measure | Buy


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

    @property
    def held(self) -> float:
        """The remainder in the sum that the session pays from: that of pure noise where it draws no other."""
        return float(self.left.renyi if self.left.pure is None else self.left.pure)

    def pays(self, price: Amounts) -> bool:
        """Whether so much is left."""
        return price.within(self.left) == price

    def forfeit(self, price: Amounts) -> None:
        """Lose the cost of the round, too."""
        self.left = self.left.minus(price)
        super().forfeit(price)


S = TypeVar("S", bound=State)


class SessionMechanism(ABC, Generic[S]):
    """The mechanism of a session or release. States are owned by their holder: what changes one does so in place."""

    #: What a question may take for a while beside a state, as far as that is counted before a session is opened.
    asking_bytes = 0

    @abstractmethod
    def start(self) -> S:
        """The state before the first query."""

    def nbytes(self, updates: int) -> int:
        """About how many bytes a state takes after so many updates, or at most where :meth:`held_bytes` tells more;
        unless overridden there is none to speak of.
        """
        return 0

    def held_bytes(self, state: S) -> int | None:
        """About how many bytes a state takes now; None where :meth:`nbytes` says it as well."""
        return None


class AnsweringMechanism(SessionMechanism[S]):
    """The decisions about queries."""

    #: Why it answers nothing unverified, unless it is :class:`Hypothetical`.
    instead = "the session keeps no hypothesis to answer from"

    @abstractmethod
    def admit(self, query: Query) -> None:
        """Refuse a query that was not promised.

        Raises:
            InvalidQuery: naming what was.
        """

    @abstractmethod
    def decide(self, state: S, query: Query, target: Target, slack: float = 0.0) -> Answer | Due:
        """Decide what is due for a query that was not answered before, or not as well as is wanted.

        ``slack`` is the part by which what is known is taken to be worse than it is: what was recorded was decided
        with numbers that may have had other last digits.

        Raises:
            UpdatesExhausted: when nothing can be.
            PlanInfeasible: when what is asked for cannot be had.
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
    def again(self, state: S, query: Query, given: Units, bound: float | None, target: Target) -> Answer | None:
        """The first answer once more; None where it is not known as well as is asked for."""

    @abstractmethod
    def show(self, state: S, query: Query, units: Units, target: Target) -> Estimates | None:
        """How well values that were given are known by now; None where nothing is known of that."""

    def apart(self, state: S) -> S:
        """A state like this one to decide on, so that nothing of that is left in this one; it must learn nothing. It
        is this one itself unless deciding makes what later decisions start from.
        """
        return state

    def pass_by(self, state: S, query: Query, due: Answer | Due) -> None:
        """Take it that a question was answered so, whatever was released, in a state apart: for those that later shares
        depend on that.
        """

    def foretold(self, state: S, query: Query, due: Due) -> FloatArray | None:
        """How far the intervals of a question's answers are to reach to either side if what is due releases them, as
        public things tell; NaN of those of which that is not known, None where it is known of none.
        """
        return None

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
        """The measurements due at the opening, given what was measured before, with the price of each.

        Raises:
            PlanInfeasible: when what the session asks for cannot be paid.
        """


class Dumping(ABC, Generic[S]):
    """A mechanism whose state may take longer to make again than to write down."""

    @abstractmethod
    def dump(self, state: S) -> Dump:
        """The bytes that :meth:`load` makes the same state of, but for what was used."""

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
