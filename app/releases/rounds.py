"""Iterative construction: rounds that choose what a hypothesis errs on most, measure it, and learn it.

Source: GRU11 section 6, an iterative database construction (IDC) with a private distinguisher; for multiplicative
weights Hardt, Ligett, McSherry 2012. The distinguisher is the exponential mechanism. What a round measures is not a
query alone but the cells that it tells apart, each with its own noise, which costs no more: a record is in one of them.
The hypothesis learns all of these cells.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from decimal import ROUND_FLOOR, Context, Decimal
from fractions import Fraction

import numpy as np

from app.constructions.base import MarginalConstruction
from app.measurements.noise import Noise
from app.measurements.pieces import Counts, counts_of
from app.measurements.record import Measurement, Purchase
from app.measurements.strategies.tables import TableStrategy
from app.patience import Progress
from app.privacy.costs import ExponentialChoice
from app.privacy.exactness import floor_to
from app.privacy.ledger import Amounts
from app.releases.candidates import Candidates, merged
from app.releases.factorization import Paying, Unaffordable
from app.releases.playing import Choose, Exact, Play
from app.spaces.partition import Marginal
from app.spaces.tensor import DenseTensor, FloatArray, IntArray

#: This part of what a round may cost is for its choice, the rest for its measurement.
CHOICE_PART = Fraction(1, 3)
#: The least and the most rounds where no number is asked for, and how many where the number of records is not known.
LEAST_ROUNDS, MOST_ROUNDS, UNKNOWN_ROUNDS = 3, 256, 10
#: A measurement with more cells than this is not learnt: each cell may be an update of its own.
MOST_LEARNT = 1 << 12
#: So many measurements are gone over again after each.
MOST_KNOWN = 64
_DOWN = Context(prec=6, rounding=ROUND_FLOOR)


@dataclass(frozen=True, eq=False)
class Rounds:
    """The terms of all rounds of a release, and what they choose from.

    Attributes:
        number: T, how many there are.
        epsilon: of the choice of each.
        noise: of the measurement of each.
        gamma: by how much the counts of all cells move between neighbours.
        choice: what a choice costs.
        price: what a round costs, its choice and its measurement.
        candidates: what is chosen from.
    """

    number: int
    epsilon: Decimal
    noise: Noise
    gamma: int
    choice: Amounts
    price: Amounts
    candidates: Candidates

    @property
    def choice_scale(self) -> Fraction:
        """A candidate is chosen with probability proportional to exp(score/scale): 2 gamma D/epsilon, D the most that
        one record moves a score by.
        """
        return 2 * self.gamma * self.candidates.largest / Fraction(self.epsilon)

    def purchase(self, candidate: int) -> Purchase[TableStrategy]:
        """The purchase of a chosen candidate; the choice is in its price."""
        return Purchase(self.candidates.strategy(candidate), self.noise, self.price)

    def play(self, hypothesis: Hypothesis, progress: Progress, exact: Exact, choose: Choose) -> Play:
        """The play of all rounds.

        Args:
            hypothesis: what the first one is held against; it learns.
            progress: told from time to time.
            exact: the exact counts of candidates.
            choose: chooses by their scores.
        """
        counts = exact(self.candidates.strategies)
        for number in range(self.number):
            chosen = choose(hypothesis.scores(self, counts), self.choice_scale)
            released = yield self.purchase(chosen)
            hypothesis.learn(released.of(TableStrategy))
            progress((number + 1) / self.number)

    def admits(self, release: Measurement[TableStrategy]) -> bool:
        """Whether a measurement is that of some candidate, with the noise of these rounds."""
        return release.noise == self.noise and self.candidates.owns(release.strategy)


def terms(candidates: Candidates, number: int, paying: Paying) -> Rounds:
    """The terms of so many rounds, all alike, the least noise that can be paid.

    Raises:
        Unaffordable: when what may be paid would buy less noise than is offered, or more than can be drawn.
    """
    each = Fraction(paying.share) / number
    part = float(each * CHOICE_PART)
    # The cost of a choice is the lesser of its epsilon and a quarter of what a pure step may cost.
    epsilon = _DOWN.create_decimal_from_float(max(part, math.sqrt(8 * part / float(paying.order))))
    choice = Amounts.of(ExponentialChoice(epsilon), paying.order) if epsilon > 0 else None
    most = floor_to(each)
    if choice is None or choice.renyi >= most:
        raise Unaffordable("so small a share does not pay for so many rounds: raise epsilon, or ask for fewer")
    left = Amounts(most).minus(Amounts(choice.renyi))
    (bought,) = replace(paying, share=left.renyi).fitted([candidates.strategy(0)], [1.0])
    price = choice.plus(bought.price)
    return Rounds(number, epsilon, bought.added, paying.gamma, choice, price, candidates)


def usual_number(mass: float | None, cells: int, concentration: float, candidates: Candidates) -> int:
    """How many rounds are played where none are asked for, after what helped on several tables.

    The hypothesis' error falls like ``n sqrt(ln d / T)``, n the mass and d the number of cells, and noise grows like
    ``sqrt(T/rho)`` for a share that is rho-concentrated: they are alike at a T proportional to ``n sqrt(rho ln d)``.
    On real tables, whose attributes hang together, about its root is best, and the root of that where a round teaches a
    whole marginal; but no more than half as many again as could teach everything.

    Args:
        mass: n; None where it is not known.
        cells: d.
        concentration: rho.
        candidates: what is chosen from.
    """
    most = min(MOST_ROUNDS, candidates.freedom * 3 // 2)
    if mass is None:
        return min(UNKNOWN_ROUNDS, most)
    root = math.sqrt(mass * math.sqrt(2 * concentration * math.log(max(cells, 2))))
    return min(max(LEAST_ROUNDS, round(1.2 * (math.sqrt(root) if candidates.whole else root))), most)


class Hypothesis:
    """The hypothesis of a construction after measurements.

    Args:
        construction: over the cells of a table.
        known: what it learns from first.
    """

    def __init__(self, construction: MarginalConstruction, known: Iterable[Measurement[TableStrategy]] = ()) -> None:
        self._construction, self._state = construction, construction.start()
        self._known: list[Counts] = []
        for release in known:
            self.learn(release)

    def table(self) -> FloatArray:
        """Its counts of all cells, in the table's shape; not to be kept, as learning changes them."""
        return self._construction.dense(self._state)

    def learn(self, release: Measurement[TableStrategy]) -> float | None:
        """Take in counts that were measured, and go over what was taken in before once more, the newest first.

        Each value that is farther from the hypothesis than its standard deviation is an update of the construction, the
        farthest first. The half-space that it is taken to certify is drawn back by that deviation: by less than all
        noises keep, so that the bound on updates does not hold, and with less error on all tables that were tried.

        Returns:
            The largest distance of a value from the hypothesis before, in counts; None where nothing is learnt.
        """
        if release.strategy.plain is None or release.strategy.cells > MOST_LEARNT:
            return None
        gap = self._update(counts_of(release))
        for known in reversed(self._known):
            self._update(known)
        self._known = [*self._known, counts_of(release)][-MOST_KNOWN:]
        return gap

    def _update(self, measured: Counts) -> float:
        """Make the updates of a measurement; the largest distance of its values from the hypothesis before."""
        present, values, deviation = self._counts()(measured.marginal), measured.values, math.sqrt(measured.variance)
        self._construction.learn_cells(self._state, measured.marginal, present, values, deviation)
        return float(np.abs(values - present).max())

    def scores(self, rounds: Rounds, counts: Sequence[IntArray]) -> IntArray:
        """The scores of all candidates; ``counts`` as of :meth:`Candidates.scores`."""
        return rounds.candidates.scores(counts, self._counts(), float(rounds.noise.scale))

    def _counts(self) -> Callable[[Marginal], FloatArray]:
        """Its counts in the cells of marginals."""
        tensor = DenseTensor(self.table())
        return lambda marginal: merged(np.asarray(tensor.marginal(marginal.attributes), np.float64), marginal)


@dataclass(frozen=True, eq=False)
class Learnt:
    """The result of a release's rounds.

    Attributes:
        table: counts of all cells, in the table's shape.
        chosen: the attributes of the query of each round.
        gaps: the largest distance of what each round measured from the hypothesis before, in counts.
    """

    table: FloatArray
    chosen: tuple[tuple[int, ...], ...]
    gaps: tuple[float, ...]


def learnt(
    construction: MarginalConstruction,
    known: Sequence[Measurement[TableStrategy]],
    made: Sequence[Measurement[TableStrategy]],
    progress: Progress,
) -> Learnt:
    """The result of a release's rounds: the average of the hypotheses behind the last quarter of them.

    Args:
        construction: that keeps the hypothesis.
        known: what was measured of the data set before.
        made: what was measured for the release, in that order.
        progress: told how much is done, from 0 to 1.
    """
    hypothesis = Hypothesis(construction)
    for release in known:
        hypothesis.learn(release)
    table: FloatArray = np.zeros_like(hypothesis.table())
    first = len(made) - max(1, len(made) // 4)
    chosen, gaps = [], []
    for number, release in enumerate(made):
        assert release.strategy.plain is not None
        chosen.append(release.strategy.plain.attributes)
        gaps.append(hypothesis.learn(release) or 0.0)
        if number >= first:
            table += hypothesis.table() / (len(made) - first)
        progress((number + 1) / len(made))
    return Learnt(table, tuple(chosen), tuple(gaps))
