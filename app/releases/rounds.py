"""Iterative construction: rounds that choose the query on which a hypothesis errs most, measure it, and learn it.

Source: GRU11 section 6, an iterative database construction (IDC) with a private distinguisher; for multiplicative
weights Hardt, Ligett, McSherry 2012. The distinguisher is the exponential mechanism over the linear queries of the
workload. What a round measures is not the query alone but the partition of the table that it makes, which costs no
more; the hypothesis learns all of its cells.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import ROUND_FLOOR, Context, Decimal
from fractions import Fraction

import numpy as np

from app.constructions.base import CellConstruction, MeasuredQuery
from app.evidence.measurements import Marginal, Measurement
from app.evidence.policy import Buy
from app.evidence.strategies import Release, Strategy
from app.privacy.costs import ExponentialChoice
from app.privacy.exactness import floor_to
from app.privacy.ledger import Amounts
from app.releases.candidates import Candidates, merged
from app.releases.designs import Means, Unaffordable, alike
from app.releases.finishing import Answers, Job, Outcome, Progress
from app.spaces.compilation import CellSpace
from app.spaces.tensor import DenseTensor, FloatArray, IntArray

#: This part of what a round may cost is for its choice, the rest for its measurement.
CHOICE_PART = Fraction(1, 2)
#: The most rounds where none are asked for.
MOST_ROUNDS = 256
#: A measurement with more cells than this is not learnt: each cell is an update of its own.
MOST_LEARNT = 256
_DOWN = Context(prec=6, rounding=ROUND_FLOOR)


@dataclass(frozen=True, eq=False)
class Rounds:
    """The terms of all rounds of a release, and what they choose from.

    Attributes:
        number: T, how many there are.
        epsilon: of the choice of each.
        noise: of the measurement of each: its law and scale, as a purchase of any candidate's strategy has them.
        gamma: by how much the counts of all cells move between neighbours.
        choice: what a choice costs.
        price: what a round costs, its choice and its measurement.
        candidates: what is chosen from.
    """

    number: int
    epsilon: Decimal
    noise: Buy
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

    def buy(self, candidate: int) -> Buy:
        """What is measured where this candidate was chosen."""
        return Buy(self.candidates.strategy(candidate), self.noise.kind, self.noise.scale)

    def admits(self, release: Release) -> bool:
        """Whether a measurement is that of some candidate, with the noise of these rounds."""
        noise = release.noise
        same = (noise.kind, noise.scale, noise.bits) == (self.noise.kind, self.noise.scale, 0)
        return same and self.candidates.owns(release.strategy)


def terms(candidates: Candidates, number: int, means: Means) -> Rounds:
    """The terms of so many rounds, all alike, the least noise that can be paid.

    Raises:
        Unaffordable: when what may be paid would buy less noise than is offered, or more than can be drawn.
    """
    each = Fraction(means.holds.renyi) / number
    part = float(each * CHOICE_PART)
    # The cost of a choice is the lesser of its epsilon and a quarter of what a pure step may cost.
    epsilon = _DOWN.create_decimal_from_float(max(part, math.sqrt(8 * part / float(means.order))))
    if epsilon <= 0:
        raise Unaffordable("so small a share does not pay for so many rounds: raise epsilon, or ask for fewer")
    choice = Amounts.of(ExponentialChoice(epsilon), means.order)
    left = Amounts(floor_to(each)).minus(Amounts(choice.renyi))
    (noise,) = alike([candidates.strategy(0)], Means(means.order, left, means.gamma, means.price))
    price = choice.plus(means.price(noise.strategy, noise.kind, noise.scale))
    return Rounds(number, epsilon, noise, means.gamma, choice, price, candidates)


def usual_number(mass: float, cells: int, concentration: float) -> int:
    """How many rounds are played where none are asked for, after what helped on several tables.

    The hypothesis' error falls like ``n sqrt(2 ln d / T)``, n the mass and d the number of cells, and noise grows like
    ``sqrt(T/rho)`` for a share that is rho-concentrated: they are alike at a T proportional to ``n sqrt(2 rho ln d)``.
    """
    balance = mass * math.sqrt(2 * concentration * math.log(max(cells, 2)))
    return min(MOST_ROUNDS, max(3, round(balance / 15)))


class Hypothesis:
    """What a construction has learnt from measurements.

    Args:
        construction: over the cells of a table.
    """

    def __init__(self, construction: CellConstruction) -> None:
        assert isinstance(construction.space, CellSpace)
        self._construction, self._space = construction, construction.space
        self._state = construction.start()

    def table(self) -> FloatArray:
        """Its counts of all cells, in the table's shape; not to be kept, as learning changes them."""
        return self._construction.dense(self._state)

    def learn(self, release: Release) -> float | None:
        """Take in counts that were measured, cell after cell: each is an update of the construction.

        The half-space that a cell's value is taken to certify is drawn back by one standard deviation: by less than all
        noises keep, so that the bound on updates does not hold, and with less error on all tables that were tried.

        Returns:
            The largest distance of a value from the hypothesis before, in counts; None where nothing is learnt.
        """
        if release.strategy.plain is None or release.strategy.cells > MOST_LEARNT:
            return None
        measured = release.counts
        gap = float(np.abs(measured.values - merged_of(self.table(), measured.marginal)).max())
        for query in self._queries(measured):
            self._construction.update(self._state, query)
        return gap

    def scores(self, candidates: Candidates, exact: IntArray) -> IntArray:
        """By how much it errs on each candidate, in the units of candidates, from their exact values."""
        tensor = DenseTensor(self.table())
        near = candidates.near(lambda marginal: merged(np.asarray(tensor.marginal(marginal.attributes)), marginal))
        return np.abs(exact - near)

    def _queries(self, measured: Measurement) -> list[MeasuredQuery]:
        marginal, deviation = measured.marginal, math.sqrt(measured.variance)
        named = [(a, marginal.partition(k).labels) for k, a in enumerate(marginal.attributes)]
        found = []
        for cell in np.ndindex(*marginal.shape):
            members = {a: np.flatnonzero(labels == c) for (a, labels), c in zip(named, cell, strict=True)}
            found.append(MeasuredQuery(self._space.product(members), float(measured.values[cell]), deviation))
        return found


def merged_of(table: FloatArray, marginal: Marginal) -> FloatArray:
    """Counts of a marginal's cells, from those of all cells of a table."""
    return merged(np.asarray(DenseTensor(table).marginal(marginal.attributes), dtype=np.float64), marginal)


def finish(job: Job, progress: Progress) -> Outcome:
    """Answers from the average of the hypotheses behind the later half of the rounds.

    Nothing is known of their errors, which are mostly the hypothesis' own. The summary has the attributes of each
    round's query and the distance of what it measured from the hypothesis before.
    """
    assert job.construction is not None
    hypothesis = Hypothesis(job.construction)
    for release in job.known:
        hypothesis.learn(release)
    rounds = [release for release in job.made if release.strategy.plain is not None and release.strategy.cells > 1]
    kept: FloatArray = np.zeros(hypothesis.table().shape)
    gaps: list[float] = []
    for number, release in enumerate(rounds):
        gaps.append(hypothesis.learn(release) or 0.0)
        if number >= len(rounds) // 2:
            kept += hypothesis.table()
        progress((number + 1) / len(rounds))
    table = kept / (len(rounds) - len(rounds) // 2)
    tensor = DenseTensor(table)
    answers = []
    for question in job.workload.questions:  # type: ignore[union-attr]
        counts = np.asarray(tensor.marginal(question.attributes))
        values = np.asarray(question.of(counts, _singles(counts)))
        answers.append(Answers(question, values, np.full(values.shape, np.nan)))
    summary = {
        "rounds": len(rounds),
        "chosen": [list(_attributes(release.strategy)) for release in rounds],
        "gaps": [round(gap, 3) for gap in gaps],
        "largest_gap": max(gaps[-max(1, len(gaps) // 4) :], default=0.0),
    }
    return Outcome(answers, summary=summary)


def _attributes(strategy: Strategy) -> Sequence[int]:
    assert strategy.plain is not None
    return strategy.plain.attributes
