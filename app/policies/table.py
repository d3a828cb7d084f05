"""The policy of a session on a table: predict, then pay.

From what was released so far a question is predicted, with a standard error. If that is no worse than what the
question's share of the remaining budget would buy, the prediction is the answer and nothing is paid. Otherwise the
share buys a measurement, from which this question and later ones are answered. How far predictions were off where
something was bought corrects the standard errors of later ones. Small tables are measured whole at the opening, few
questions one by one, with pure noise, where that is the better bargain.

All decisions follow from public things: what the session may pay, the questions, and recorded values. A policy over the
same residuals that was told the same records decides the same.

Constants, each with its reason, are in docs/evidence.md.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal, Self

import numpy as np

from app.estimation.intervals import Estimates
from app.estimation.scores import Scores
from app.estimation.tables.dense_fit import DenseFit, whole_table
from app.estimation.tables.estimates import around, contradicted, possible
from app.estimation.tables.local_fit import MOST_FITTED, Fit, LocalFits
from app.estimation.tables.residuals import Residuals, Unbiased
from app.estimation.tails import Term, norm_quantile, normal_quantile, reach
from app.measurements.noise import Noise, NoiseKind
from app.measurements.noise_search import (
    GREATEST_SCALE,
    SLACK,
    cheapest_noise,
    laplace_cost,
    least_noise,
    rounded_up,
)
from app.measurements.pieces import Counts
from app.measurements.record import serving
from app.measurements.rows import Sensitivity
from app.measurements.strategies.tables import Part, TableStrategy, shares
from app.spaces.partition import Marginal, Partition
from app.spaces.questions import Cells, Product, Question, Sum
from app.spaces.tensor import FloatArray

#: A whole table is measured up to so many cells at the opening, and a whole marginal for a question.
MOST_CELLS, MOST_WHOLE = 1 << 20, 1 << 16
#: The part of epsilon that measures the total of a whole table.
TOTAL_PART = 0.05
#: The part of the budget that measures one-way marginals at the opening at most, and all two-way ones.
ONE_WAYS_PART, TWO_WAYS_PART = 0.1, 0.6
#: No more two-way marginals than those of 64 attributes are measured: counting takes seconds, and each is a record.
MOST_PAIRS = 2016
#: With so many questions for each of these it is more.
MANY, MANY_PART = 50, 0.8
#: They are where sums of their cells have at most so many times the variance of a release for each question; the fit
#: makes that much better.
WORSE = 20.0
#: In as many cells at most is an attribute counted in these, and in more than so many where it is counted in cells at
#: first.
MOST_BINS, LEAST_BINS = 20, 7
#: A sum is measured on its whole marginal where the worth of that to later questions is this part of its disadvantage.
WHOLE = 0.2
#: By how much more than another a variance may be that is as good.
_AS_WELL = 1.01
#: Standard deviations of its own measured value within which a sum is shown, or a cell among others.
REACH, CELL_REACH = 1.5, 2.5
#: How many past questions tell the part of them that is paid for, and what the first few weigh against.
_RECENT, _PAID_PRIOR = 100, 5.0
_LEAST_PAID = 0.15
#: What the square of predictions' errors over that of their standard errors is held above.
_LEAST_KAPPA = 0.25
#: Where the number of questions is not declared it is taken to be twice those asked and so many, which says what is
#: worth measuring for all of them.
_UNDECLARED = 100
#: What is paid then is shared with so many purchases to come at first, and then with as many as there were before the
#: last, and so many: of what the first leaves the n-th after it takes the part 4/((n + 3)(n + 4)), or more, and
#: something is always left.
_FIRST, _UNKNOWN = 1.5, 4
#: Of what the interval of a question may miss that was chosen by what was released, the part of what was released.
OLD_PART = 0.1
#: What differs by no more than this factor differs by how it was computed.
_ALIKE = 1.001


class OutOfReach(ValueError):
    """The accuracy that a question asks for cannot be paid.

    Attributes:
        needed: what it would take, in the session's currency.
        left: what is left.
        dearest: the place, flat among the answers of the question, of the one whose interval reaches farthest; None
            where all reach as far. It follows from what was released and from what is public alone.
    """

    def __init__(self, needed: float, left: float, dearest: int | None = None) -> None:
        super().__init__(f"the accuracy asked for takes {needed:.4g}, and {max(left, 0.0):.4g} is left")
        self.needed, self.left, self.dearest = needed, left, dearest


def dearest(arms: FloatArray) -> int | None:
    """The place, flat, of what reaches farthest; None where all reach about as far, or something is not known."""
    if not np.isfinite(arms).all() or arms.max() <= arms.min() * _ALIKE:
        return None
    return int(arms.argmax())


@dataclass(frozen=True)
class Funds:
    """The budget that a session may pay from.

    Attributes:
        order: the ledger's Renyi order.
        renyi: the session's share at that order.
        epsilon: the session's epsilon.
        pure: whether it may be pure-only; then it pays in epsilon.
        questions: how many are declared, None where not.
        whole: whether the whole table is measured at the opening, whatever is asked.
        contract: whether questions are tested before they are paid for; then the opening buys what the base is made of,
            and no more.
        within: half the width that every answer's interval may have, in counts; then the least is paid that gets there,
            and nothing is bought ahead but a whole table that has fewer cells than there are questions.
        confidence: of these intervals.
        gamma: by how much all counts of a marginal together move between neighbours: the records of a privacy unit.
    """

    order: float
    renyi: float
    epsilon: float
    pure: bool
    questions: int | None
    whole: bool = False
    contract: bool = False
    within: float | None = None
    confidence: float = 0.95
    gamma: int = 1


@dataclass(frozen=True, eq=False)
class Wanted:
    """A measurement that is worth what it costs, as far as floats tell; the scale of its noise has few digits."""

    strategy: TableStrategy
    noise: Noise

    @classmethod
    def of(cls, marginal: Marginal, noise: Noise) -> Wanted:
        """Of the counts of a marginal."""
        return cls(TableStrategy.of(marginal), noise)

    @property
    def marginal(self) -> Marginal:
        """Whose counts are measured."""
        assert self.strategy.plain is not None, "more than counts is measured"
        return self.strategy.plain


@dataclass(frozen=True, eq=False)
class Prediction:
    """The prediction of a question before it was paid for.

    Attributes:
        values: in the question's shape, in counts.
        standard_error: root mean square over the values, before it is corrected by past scores; 0 where nothing at all
            was known and nothing is expected.
    """

    values: FloatArray
    standard_error: float


@dataclass(frozen=True, eq=False)
class Bought:
    """The counts that were bought for a question, of one marginal or of several at once, and what had been expected."""

    prediction: Prediction
    counts: tuple[Counts, ...]


#: How a session pays: a whole ``table`` at once, few questions one by one (``laplace``), each question where that is
#: worth it (``lift``) or where a test says so (``contract``), a ``release`` for its workload, or ``free``, nothing.
Mode = Literal["table", "laplace", "lift", "contract", "release", "free"]


def squared(error: float) -> float:
    """The square of an error that is asked for, held to what floats have squares of."""
    return min(max(error, 1e-150), 1e150) ** 2


def of_looks(missed: float, looks: int) -> float:
    """The part of what all looks at a number may miss that the n-th one has: they add up to it, whenever somebody
    ceases to refine (Bonferroni)."""
    return missed / (max(1, looks) * (max(1, looks) + 1))


class Policy:
    """The policy of a session on a table.

    Args:
        residuals: of the table; they may hold what earlier sessions measured.
        funds: what may be paid.
    """

    mode: Mode

    def __init__(self, residuals: Residuals, funds: Funds) -> None:
        self.residuals, self.fits, self._funds = residuals, LocalFits(residuals), funds
        self._sizes = residuals.sizes
        self._attributes = tuple(a for a, n in enumerate(self._sizes) if n > 1)
        #: The standard deviation of one Gaussian release of everything, in units of gamma: it is only held against what
        #: grows with gamma alike.
        self._once = math.sqrt(funds.order / (2 * funds.renyi)) if funds.renyi else math.inf
        self._asked = 0
        self.mode = self._mode()
        self._sets: dict[tuple[int, ...], None] = {}
        self._again = 0
        self._paid: deque[bool] = deque(maxlen=_RECENT)
        self._purchases = 0
        self._scores = Scores(_LEAST_KAPPA)
        self._whole: set[tuple[int, ...]] = set()
        self._largest = 3
        #: How often each marginal was bought.
        self._bought: Counter[Marginal] = Counter()
        self._dense: DenseFit | None = None
        #: Whether the base of counts is known, as far as was looked.
        self._based = False

    def copied(self) -> Self:
        """Another to decide with: the fits that it makes, from which later ones start, and what was asked of it, it
        remembers for itself. What was measured it shares with this one: it must learn nothing.
        """
        if self.mode == "table" and self.residuals.begun:
            self._whole_fit()  # the same whenever it is made, and takes long
        made = copy(self)
        made.fits = self.fits.copied()
        made._sets, made._paid = dict(self._sets), self._paid.copy()
        return made

    @property
    def nbytes(self) -> int:
        """About what it remembers, in bytes."""
        return self.fits.nbytes + (0 if self._dense is None else self._dense.nbytes)

    @property
    def pure(self) -> bool:
        """Whether the session is pure-only, and pays in epsilon."""
        return self._funds.pure and self.mode != "lift"

    @property
    def funds(self) -> Funds:
        """What may be paid."""
        return self._funds

    @property
    def total(self) -> float:
        """All that may be paid, in the session's currency."""
        return self._funds.epsilon if self.pure else self._funds.renyi

    @property
    def last(self) -> bool:
        """Whether no question comes after the next one, as far as their number was declared."""
        return self._rest() == 0

    @property
    def kappa(self) -> float:
        """The factor of predictions' standard errors: how far the last ones were off."""
        return self._scores.kappa

    def _mode(self) -> Mode:
        funds, d = self._funds, len(self._attributes)
        if not funds.renyi:
            return "free"
        if funds.contract:
            return "contract"
        if funds.whole:
            return "table"
        questions, cells = self._questions, math.prod(self._sizes)
        if funds.within is not None:
            # The sum of all cells of a table has as much noise as one of so many questions measured each on its own.
            return "table" if d and cells <= min(questions, MOST_CELLS) else "lift"
        if not funds.pure or not d:
            return "lift"
        marginals = min(questions, math.comb(d, 2) + math.comb(d, 3)) if d > 1 else questions
        if cells <= MOST_CELLS and math.sqrt(cells) / (2 * funds.epsilon) <= self._once * math.sqrt(marginals):
            return "table"
        if questions <= (self._once * funds.epsilon) ** 2 / 2:
            return "laplace"
        return "lift"

    @property
    def _questions(self) -> int:
        """How many there are taken to be."""
        declared = self._funds.questions
        return 2 * self._asked + _UNDECLARED if declared is None else max(declared, self._asked + 1)

    def opening(self) -> list[Wanted]:
        """The purchases when the session opens; what evidence knows as well already is not."""
        funds, d = self._funds, len(self._attributes)
        if funds.within is not None and not (funds.whole or funds.contract):
            return self._enough(funds.within) if self.mode == "table" else []
        if self.mode == "table":
            everything, total = self._marginal(self._attributes), self._marginal(())
            if self.residuals.public_total is not None or not d:
                return [self._part(everything, 1.0)]
            return [self._part(total, TOTAL_PART), self._part(everything, 1 - TOTAL_PART)]
        if self.mode in ("laplace", "free") or not d:
            return []
        part = min(ONE_WAYS_PART, 0.5 * d / (d + self._questions))
        ones = {self._starting((a,)): part / d for a in self._attributes}
        return self._unknown(ones if self._waits else ones | self._base, funds.renyi)

    def base(self, left: float) -> list[Wanted]:
        """What answers about counts are made of best, and is not known yet: the first of them that is paid for buys it
        where nobody said how many questions there will be. Nothing where the opening buys it.

        Of questions about numbers alone, as statistics are, it would tell little, and they are often the first.

        Args:
            left: what is left of the session's share.
        """
        if not self._waits or self._based:
            return []
        found = self._unknown(self._base, left)
        # One alone would be taken for what the question is answered from.
        self._based = len(found) < 2
        return [] if self._based else found

    @property
    def base_cells(self) -> int:
        """How many cells the first count may be measured with beside its own."""
        return sum(marginal.cells for marginal in self._base) if self._waits and not self._based else 0

    @property
    def _waits(self) -> bool:
        """Whether the base of counts waits for the first of them."""
        funds = self._funds
        return self.mode == "lift" and funds.questions is None and funds.within is None and len(self._attributes) > 2

    @cached_property
    def _base(self) -> dict[Marginal, float]:
        """All two-way marginals where they serve so many questions, and the part of the budget that each has."""
        d = len(self._attributes)
        # As many as at the opening, whenever that is: so that what is known then stays known.
        questions = _UNDECLARED if self._funds.questions is None else self._funds.questions
        if self.mode != "lift" or not 0 < math.comb(d, 2) <= min(questions, MOST_PAIRS):
            return {}
        bins = {a: _bins(self._start(a)) for a in self._attributes}
        pairs = [
            Marginal.of(self._sizes, {a: bins[a] for a in pair}) for pair in itertools.combinations(self._attributes, 2)
        ]
        if not _serve(pairs, questions):
            return {}
        # Within the bins of two-way marginals one-way ones alone tell values apart.
        binned = [a for a in self._attributes if self._start(a).cells > MOST_BINS]
        found = {self._starting((a,)): ONE_WAYS_PART / len(binned) for a in binned}
        part = TWO_WAYS_PART if questions < MANY * len(pairs) else MANY_PART
        return found | dict.fromkeys(pairs, part / len(pairs))

    def _unknown(self, parts: Mapping[Marginal, float], whole: float) -> list[Wanted]:
        """Purchases of marginals for parts of a whole, but of what is known as well."""
        found = []
        for marginal, part in parts.items():
            noise = self.noise(part * whole)
            if noise is None:
                continue
            if self.residuals.measurements:
                known = self.residuals.unbiased(Cells(marginal))
                if (known.variances <= noise.variance).all():
                    continue
            found.append(Wanted.of(marginal, noise))
        return found

    def _enough(self, within: float) -> list[Wanted]:
        """The whole table, so that all sums of its cells are known as well as is asked for; nothing where they are.

        Raises:
            OutOfReach: when that cannot be paid.
        """
        everything, confidence = self._marginal(self._attributes), self._funds.confidence

        def meets(noise: Noise) -> bool:
            # The sum of all cells reaches farthest.
            return reach([Term.of(noise, np.ones(1), repeated=everything.cells)], confidence) <= within

        guess = squared(within / normal_quantile(confidence)) / everything.cells
        buy = self._cheapest(TableStrategy.of(everything), meets, guess, self._funds.renyi)
        known = self.residuals.unbiased(Cells(everything))
        if known.estimable.all() and float(known.variances.max()) <= buy.noise.variance:
            return []
        return [self._paid_for(buy, self._funds.renyi)]

    def _cheapest(self, strategy: TableStrategy, meets: Callable[[Noise], bool], guess: float, left: float) -> Wanted:
        """The largest noise that meets what is asked for, by the law that costs less.

        Args:
            strategy: to be measured.
            meets: whether noise is small enough.
            guess: about its variance.
            left: what is left.

        Raises:
            OutOfReach: when there is no noise so small.
        """
        about: dict[NoiseKind, float] = {} if self.pure else {"gaussian": math.sqrt(guess)}
        about["laplace"] = math.sqrt(guess / 2)
        most = GREATEST_SCALE * max(sensitivity.absolute for sensitivity in strategy.sensitivity)
        noise = cheapest_noise(about, meets, lambda noise: self.price(noise, strategy.sensitivity), most=most)
        if noise is None:
            raise OutOfReach(math.inf, left)
        return Wanted(strategy, noise)

    def _paid_for(self, buy: Wanted, left: float) -> Wanted:
        """A purchase that there is enough left for.

        Raises:
            OutOfReach: when there is not.
        """
        price = self.price(buy.noise, buy.strategy.sensitivity)
        if price * (1 + SLACK) > left:
            raise OutOfReach(price, left)
        return buy

    def alone_within(self, within: float, confidence: float) -> int:
        """How many counts the whole budget pays for at least whose intervals reach so far at most, each measured by
        itself.

        Raises:
            OutOfReach: when there is no noise so small.
        """

        def meets(noise: Noise) -> bool:
            return reach([Term.of(noise, np.ones(1))], confidence) <= within

        guess, total = squared(within / normal_quantile(confidence)), self.total
        buy = self._cheapest(TableStrategy.of(self._marginal(())), meets, guess, total)
        return math.floor(total / (self.price(buy.noise) * (1 + SLACK)))

    def _part(self, marginal: Marginal, part: float) -> Wanted:
        """The noise that a part of the whole budget buys."""
        if self.pure:
            scale = rounded_up(self._funds.gamma / (part * self._funds.epsilon))
            return Wanted.of(marginal, Noise("laplace", scale, 0))
        noise = self.noise(part * self._funds.renyi)
        if noise is None:
            raise OutOfReach(math.inf, self._funds.renyi)
        return Wanted.of(marginal, noise)

    def decide(
        self,
        question: Question,
        left: float,
        within: float | None = None,
        confidence: float = 0.95,
        slack: float = 0.0,
        adaptive: bool = False,
    ) -> tuple[Prediction, Wanted | None]:
        """The prediction of a question, and what is bought for it; None where it is answered free.

        Args:
            question: of this table.
            left: what is left of the session's share, in its currency.
            within: half the width that its unbiased interval may have; then the least is bought that gets there.
            confidence: of that interval.
            slack: the part by which the prediction is taken to be worse than it is.
            adaptive: whether that interval must hold for a question that was chosen by what was released.

        Raises:
            OutOfReach: where ``within`` cannot be paid, or nothing is known and nothing can be.
            ValueError: for a width that is no positive number, or a confidence out of range.
        """
        prediction = self.predicted(question)
        if within is not None:
            return prediction, self._accurate(question, left, within, confidence, adaptive)
        if self.mode == "table":
            return prediction, None
        if self.mode == "laplace":
            return prediction, self._alone(question, left)
        missed = self._missed(question, confidence) if adaptive else None
        buy = self._share(question, left, prediction, 1 + slack, missed)
        if buy is None and not self.residuals.begun:
            raise OutOfReach(self._funds.renyi, left)
        return prediction, buy

    def share(self, question: Question, left: float, *, whole: bool = True) -> float:
        """The share to be spent at most on a question of what is left, where its answers are those of a whole marginal
        or not."""
        if self.mode == "laplace":
            return left / (1 + self._rest())
        return left / (1 + self._later(question, whole))

    def purchase(self, question: Question, left: float) -> Wanted | None:
        """The purchase for a question about counts that is not answered free; None where nothing is bought."""
        if self.mode == "table":
            return None
        return self._alone(question, left) if self.mode == "laplace" else self._worth(question, left)

    def ahead(self, question: Question, left: float, purchases: int, *, whole: bool = False) -> float:
        """Take it that so much was bought for others like a question, with their shares; what is left then.

        Args:
            question: of this table.
            left: before that.
            purchases: how many.
            whole: whether they are for whole marginals, or worth as much.
        """
        whole = whole or (purchases > 0 and self._worth_whole(question))
        for _ in range(purchases):
            left -= self.share(question, left, whole=whole)
            self._asked += 1
            self._purchases += 1
            self._paid.append(True)
        return left

    def note(self, question: Question, *, paid: bool) -> None:
        """Take note of a question that was answered, and whether something was measured for it."""
        attributes = question.attributes
        self._asked += 1
        self._again += attributes in self._sets
        self._sets[attributes] = None
        self._paid.append(paid)
        self._purchases += paid
        if question.shape:
            self._largest = max(self._largest, len(attributes))

    def record(self, question: Question, bought: Bought | None) -> None:
        """Take note of a question about counts, and of what was measured for it."""
        # What later counts are answered from as well is no purchase for this one.
        single = bought is not None and (question.additive or len(bought.counts) == 1)
        self.note(question, paid=single)
        if bought is None:
            return
        for counts in bought.counts:
            self.residuals.add(counts)
            self._bought[counts.marginal] += 1
            if self._is_whole(counts.marginal):
                self._whole.add(counts.marginal.attributes)
        # Of answers that add up no fit is shown, and none was expected.
        if self.mode in ("lift", "contract") and single and not question.additive:
            values, variances = own(question, *bought.counts)
            squared = float(np.mean(np.square(values - bought.prediction.values)))
            self._scores.learn(squared, float(variances.mean()), bought.prediction.standard_error)

    def shown(
        self,
        question: Question,
        bought: Bought | None,
        confidence: float,
        adaptive: bool = False,
        given: FloatArray | None = None,
        *,
        inside: bool = False,
    ) -> Estimates:
        """The estimate that is shown of a question after it was recorded.

        Args:
            question: of this table.
            bought: what was measured for it.
            confidence: of the intervals.
            adaptive: whether the question may have been chosen by what was released: the interval is then as wide as
                holds for all weights on the cells that it tells apart at once (Scheffe), and for all of its refinements
                (Bonferroni).
            given: the values that were shown before, in the question's shape; they are shown again.
            inside: whether values lie within the intervals of what was measured, which then reach to no others: of a
                half-width that somebody wished for.
        """
        unbiased = self.residuals.unbiased(question)
        values = self.value(question, bought, unbiased) if given is None else given
        if adaptive:
            missed = self._missed(question, confidence)
            fresh = () if bought is None else bought.counts
            unbiased, reaches = self._chosen(question, unbiased, fresh, missed)
        else:
            reaches = self.residuals.reaches(question, unbiased, confidence)
        if inside and given is None:
            held = np.clip(values, unbiased.values - reaches, unbiased.values + reaches)
            values = np.where(unbiased.estimable, held, values)

        def deviations() -> FloatArray:
            fit = self._fit(question)
            assert isinstance(fit, Fit)
            return fit.standard_errors(question) * max(self.kappa, 1.0)

        found = around(question, values, unbiased, reaches, deviations, self.residuals.public_total, confidence)
        if adaptive and not unbiased.estimable.all():
            found = found.chosen(*possible(question, self.most_records(missed)), normal_quantile(confidence))
        # Values that were given before have an interval of the model's only where there is no other.
        fitted = not unbiased.estimable.all() or (given is None and not question.additive)
        return replace(found, converged=not fitted or self._fit(question).converged)

    def _missed(self, question: Question, confidence: float, ahead: int = 0) -> float:
        """What intervals of a question may miss that is looked at now, or after so many purchases more."""
        return of_looks(1 - confidence, self._bought[question.marginal_of(self._sizes)] + ahead)

    def most_records(self, missed: float) -> float | None:
        """How many records there are at most, but with a probability, whatever was chosen by what was released; None
        where nothing tells."""
        if self.residuals.public_total is not None:
            return self.residuals.public_total
        known = self.residuals.total
        reached = float(known.values) + float(known.standard_errors) * self.chosen_quantile((), missed)
        return max(reached, 0.0) if known.estimable.all() else None

    def _chosen(
        self, question: Question, known: Unbiased, fresh: Sequence[Counts], missed: float
    ) -> tuple[Unbiased, FloatArray]:
        """Unbiased values of a question that may have been chosen by all that was released before it was asked, and how
        far their intervals reach: of all that is known together what holds for all questions that could be asked, or of
        what was measured for this one alone, whose noise nobody knew, its own; whichever is narrower."""
        part = missed * OLD_PART if fresh else missed
        reaches = known.standard_errors * self.chosen_quantile(question.attributes, part)
        if not fresh:
            return known, reaches
        alone = self.residuals.fresh()
        for counts in fresh:
            alone.add(counts)
        own = alone.unbiased(question)
        own_reaches = alone.reaches(question, own, 1 - missed * (1 - OLD_PART))
        narrower = ~(own_reaches >= reaches) & own.estimable
        values = np.where(narrower, own.values, known.values)
        variances = np.where(narrower, own.variances, known.variances)
        return Unbiased(values, variances), np.where(narrower, own_reaches, reaches)

    def chosen_quantile(
        self,
        attributes: Sequence[int],
        missed: float,
        also: int = 0,
        others: Sequence[tuple[Residuals, Sequence[int]]] = (),
    ) -> float:
        """How many standard deviations hold for all questions at once that can be asked, but with a probability.

        The noise in the values of all questions on the same attributes is made of that of their residuals; each number
        of attributes has an equal part of what may be missed, that of none among them unless the total is public, and
        each set an equal part of that.

        Args:
            attributes: of the question.
            missed: the probability.
            also: numbers that the question is made of besides.
            others: what else was measured that it is made of, and by which attributes.
        """
        d = len(self._attributes)
        sets = (d + (self.residuals.public_total is None or not d)) * math.comb(d, min(len(attributes), d))
        normal, step = also, 0.0
        heavy: list[tuple[Noise, int, int]] = []
        for residuals, named in ((self.residuals, attributes), *others):
            own, more = residuals.spanned(named)
            normal, heavy, step = normal + own, heavy + more, max(step, residuals.longest_step)
        return norm_quantile(normal, heavy, missed / sets, step)

    def value(self, question: Question, bought: Bought | None, unbiased: Unbiased | None = None) -> FloatArray:
        """The values that are shown of a question after it was recorded, without their errors: the fit's, near to what
        was measured for it, unless all that was measured contradicts them.

        Args:
            question: of this table.
            bought: what was measured for it.
            unbiased: its unbiased values; they are found where they are left out.
        """
        if question.additive:
            return self.fitted(question, bought)
        known = self.residuals.unbiased(question) if unbiased is None else unbiased
        values = self.fitted(question, bought, known)
        if contradicted(values, known):
            values = np.clip(known.values, *possible(question, self.residuals.public_total))
        return values

    def fitted(self, question: Question, bought: Bought | None, known: Unbiased | None = None) -> FloatArray:
        """The fit's values of a question, near to what was measured for it, whether or not anything contradicts them:
        those of questions that make up a whole add up to it.

        Args:
            question: of this table.
            bought: what was measured for it.
            known: its unbiased values, which must be told where something was.
        """
        if question.additive:
            return self._adding(question).values
        values = self._expected(question, self._fit(question))
        if bought is not None and len(bought.counts) == 1:
            assert known is not None
            values = self.residuals.known_zero(question, self._near(question, *bought.counts, known, values=values))
        return np.clip(values, *possible(question, self.residuals.public_total))

    def working_bytes(self, question: Question) -> int:
        """The most bytes that learning a question's own cells and answering from them take for a while."""
        if self.mode == "table" or question.cells > MOST_FITTED:
            return 0
        return self.fits.working_bytes(question)

    # What is predicted.

    def _fit(self, question: Question) -> Fit | DenseFit:
        return self._whole_fit() or self.fits.best(question)

    def _whole_fit(self) -> DenseFit | None:
        if self._dense is None and self.mode == "table":
            self._dense = whole_table(self.residuals, self.fits.shares)
        return self._dense

    def _expected(self, question: Question, fit: Fit | DenseFit) -> FloatArray:
        """The fit's values; unbiased ones where there is no fit but the product of one-way marginals."""
        values = fit.values(question)
        if isinstance(fit, Fit) and not fit.known:
            unbiased = self.residuals.unbiased(question)
            values = np.where(unbiased.estimable, unbiased.values, values)
        return values

    def _adding(self, question: Question) -> Prediction:
        """Answers that add up: unbiased ones where all of them are estimable, and none is known to be 0, else the
        fit's."""
        known = self.residuals.unbiased(question)
        if known.estimable.all() and self.residuals.zeros.impossible(question) is None:
            return Prediction(known.values, math.sqrt(float(known.variances.mean())))
        fit = self.fits.best(question)
        return Prediction(fit.values(question), fit.standard_error(question))

    def predicted(self, question: Question) -> Prediction:
        """The prediction of a question."""
        if not self.residuals.begun:
            return Prediction(np.zeros(question.shape), 0.0)
        if question.additive:
            return self._adding(question)
        fit = self._fit(question)
        least, most = possible(question, self.residuals.public_total)
        values = np.clip(self._expected(question, fit), least, most)
        if isinstance(fit, DenseFit):
            variances = self.residuals.unbiased(question).variances
            return Prediction(values, math.sqrt(float(variances.mean())))
        return Prediction(values, fit.standard_error(question))

    # What is bought.

    def _share(
        self, question: Question, left: float, prediction: Prediction, slack: float, missed: float | None
    ) -> Wanted | None:
        """Budget first: the question's share of what is left, unless the prediction is as good.

        Args:
            question: of this table.
            left: what is left of the session's share.
            prediction: of the question.
            slack: by how much the prediction is taken to be worse than it is.
            missed: by which part of them intervals of questions that were chosen by what was released may miss; None
                where this one was not. A prediction may have chosen it, and what is known then reaches farther.
        """
        wanted = self._worth(question, left)
        known = prediction.standard_error > 0 or self.residuals.begun
        error = self.kappa * prediction.standard_error
        if missed is not None:
            told = self.residuals.unbiased(question)
            farther = self.chosen_quantile(question.attributes, missed) / normal_quantile(1 - missed)
            spread = math.sqrt(float(told.variances.mean())) if told.estimable.all() else math.inf
            error = max(error, farther * spread)
        if wanted is not None and known and slack * error <= self._error(question, wanted):
            return None
        base = [] if wanted is None else self.base(left)
        return self._with_base(question, base, left) if base else wanted

    def _with_base(self, question: Question, base: Sequence[Wanted], left: float) -> Wanted | None:
        """The base of counts, and beside it the question's own marginal where that will be worth its share of what is
        left then."""
        prices = [self.price(buy.noise) for buy in base]
        marginals = [buy.marginal for buy in base]
        joint, plain = self._together(marginals, prices), self._plain(question, left - sum(prices))
        if joint is None or plain is None or plain[0].marginal in marginals:
            return joint
        own, share = plain
        after = self.residuals.variances_after(question, joint.strategy, joint.noise.variance)
        if np.nan_to_num(after, nan=math.inf).mean() <= self._error(question, own) ** 2:
            return joint
        return self._together([*marginals, own.marginal], [*prices, share])

    def _together(self, marginals: Sequence[Marginal], prices: Sequence[float]) -> Wanted | None:
        """Several marginals in one measurement, for about these prices."""
        multipliers = shares([1] * len(prices), prices)
        strategy = TableStrategy(tuple(map(Part, marginals, itertools.repeat(None), multipliers)))
        noise = self.noise(sum(prices), strategy.sensitivity)
        return None if noise is None else Wanted(strategy, noise)

    def _worth(self, question: Question, left: float) -> Wanted | None:
        """The purchase of the question's share."""
        plain = self._plain(question, left)
        return None if plain is None else self._best(question, *plain)

    def _plain(self, question: Question, left: float) -> tuple[Wanted, float] | None:
        """The purchase of the question's own marginal, or the whole one, for its share, and that."""
        if left <= 0:
            return None
        whole = self._worth_whole(question)
        share = left / (1 + self._later(question, whole))
        noise = self.noise(share)
        if noise is None:
            return None
        marginal = self._whole_of(question) if whole and not question.shape else question.marginal_of(self._sizes)
        return Wanted.of(marginal, noise), share

    def _best(self, question: Question, plain: Wanted, share: float) -> Wanted:
        """Of a question's own marginal and the strategies that serve it besides, with the noise that its share pays
        for, the one after which all answers together are known best: they would be off by the least in squares."""
        others = ((strategy, self.noise(share, strategy.sensitivity)) for strategy in serving(question))
        wanted = [plain, *(Wanted(strategy, noise) for strategy, noise in others if noise is not None)]
        if len(wanted) == 1:
            return plain

        def squares(buy: Wanted) -> float:
            return float(self.residuals.variances_after(question, buy.strategy, buy.noise.variance).sum())

        return min(wanted, key=squares)

    def _error(self, question: Question, wanted: Wanted) -> float:
        """The root mean square error of the answers if nothing else is known of them; where each is a cell of its own,
        what a cell is.
        """
        if not question.additive:
            return math.sqrt(wanted.noise.variance)
        alone = self.residuals.fresh().variances_after(question, wanted.strategy, wanted.noise.variance)
        return math.sqrt(float(alone.mean()))

    def _worth_whole(self, question: Question) -> bool:
        """Whether a question is measured for its whole marginal: answers to many cells are; a sum is where later
        questions on the same attributes are likely to be worth more than the noise of more cells costs this one."""
        if question.shape:
            return True
        cells = self._whole_of(question)
        if cells.cells > MOST_WHOLE:
            return False
        rest = max(self._questions - self._asked - 1, 0)
        again = self._again + (question.attributes in self._sets)
        different = len(self._sets) + (question.attributes not in self._sets)
        worth = rest * again / (self._asked + 1) / different
        disadvantage = _summed_cells(question, cells)
        return worth >= WHOLE * disadvantage or (disadvantage <= 1 and self._tells_as_well(question, cells))

    def _tells_as_well(self, question: Question, whole: Marginal) -> bool:
        """Whether counts of a whole marginal tell a sum as well as those of its own, with noise so small that nothing
        else matters but the number of records where it is public: all but few of them are these and that."""
        members = [whole.partition(k).members for k in range(len(whole.attributes))]
        if isinstance(question, Product) and all(
            np.count_nonzero(vector[own]) == 1 for vector, own in zip(question.vectors, members, strict=True)
        ):
            return True  # one cell of either, as of most questions
        own = question.marginal_of(self._sizes)
        after = [self.residuals.variances_after(question, TableStrategy.of(m), 1.0) for m in (whole, own)]
        return float(after[0]) <= _AS_WELL * float(after[1])

    def _whole_of(self, question: Question) -> Marginal:
        """The whole marginal on a question's attributes: their single values, or starting cells divided as the question
        divides them."""
        starts = self.residuals.starting
        told = zip(question.attributes, question.partitions, strict=True)
        return Marginal.of(self._sizes, {a: p.met(starts[a]) if a in starts else None for a, p in told})

    def _rest(self) -> float:
        """How many questions the budget is shared with that come after this one: all that were declared, or of an
        unknown number those that are taken to be paid for."""
        if self._funds.questions is None:
            return self._purchases - 1 + _UNKNOWN if self._purchases else _FIRST
        return max(self._funds.questions - self._asked - 1, 0)

    def _later(self, question: Question, whole: bool) -> float:
        """How many later purchases the budget is shared with."""
        paid = (_PAID_PRIOR + sum(self._paid)) / (_PAID_PRIOR + len(self._paid))
        paid = max(paid, _LEAST_PAID)
        later: float = self._rest()
        if self._funds.questions is not None:
            later *= paid
        if whole:
            d = len(self._attributes)
            largest = max(self._largest, len(question.attributes) if question.shape else 0)
            marginals = sum(math.comb(d, order) for order in range(1, largest + 1)) - len(self._whole)
            later = min(later, max(marginals, 0) * paid + 2)
        return later

    def _is_whole(self, marginal: Marginal) -> bool:
        """Whether each attribute is counted in its starting cells or finer ones."""
        return all(
            partition is None or (a in self.residuals.starting and partition.refines(self.residuals.starting[a]))
            for a, partition in zip(marginal.attributes, marginal.partitions, strict=True)
        )

    def _alone(self, question: Question, left: float) -> Wanted | None:
        """Few questions: each with an equal part of what is left, unless it is known as well."""
        if left <= 0:
            return None
        rest = 1 + self._rest()
        scale = rounded_up(self._funds.gamma * rest / left)
        if float(scale) > GREATEST_SCALE:
            return None
        noise = Noise("laplace", scale, 0)
        known = self.residuals.unbiased(question)
        if known.estimable.all() and bool((known.variances <= noise.variance).all()):
            return None
        return self._best(question, Wanted.of(question.marginal_of(self._sizes), noise), left / rest)

    def reaches_with(self, question: Question, buy: Wanted, confidence: float, *, adaptive: bool = False) -> FloatArray:
        """How far the intervals of a question about counts are to reach once this is bought for it, in counts, in its
        shape: before they are cut to what is possible, and of one that may have been chosen by what was released
        (``adaptive``) by the new noise alone.
        """
        before = self.residuals
        if adaptive:
            missed = self._missed(question, confidence, ahead=1)
            before, confidence = before.fresh(), 1 - missed * (1 - OLD_PART)
        return before.reaches_after(question, buy.strategy, buy.noise, confidence)

    def _accurate(
        self, question: Question, left: float, within: float, confidence: float, adaptive: bool
    ) -> Wanted | None:
        """Accuracy first: the least that makes half the unbiased interval at most ``within`` wide, by whichever of the
        strategies that serve the question costs least."""
        if not 0 < within < math.inf:
            raise ValueError("an accuracy is a positive number of counts")
        known = self.residuals.unbiased(question)
        marginal = question.marginal_of(self._sizes)
        before = self.residuals
        if adaptive:
            missed = self._missed(question, confidence, ahead=1)
            reaches = self._chosen(question, known, (), missed)[1]
            # What was released before may have chosen the question: new noise alone must do.
            before = self.residuals.fresh()
            confidence = 1 - missed * (1 - OLD_PART)
        else:
            reaches = self.residuals.reaches(question, known, confidence)
        if known.estimable.all() and float(reaches.max()) <= within:
            return None

        allowed = squared(within / normal_quantile(confidence))

        def enough(strategy: TableStrategy) -> Wanted:
            def meets(noise: Noise) -> bool:
                return bool(before.reaches_after(question, strategy, noise, confidence).max() <= within)

            return self._cheapest(strategy, meets, before.sufficient_variance(question, strategy, allowed), left)

        found = [enough(strategy) for strategy in (TableStrategy.of(marginal), *serving(question))]
        buy = min(found, key=lambda buy: self.price(buy.noise, buy.strategy.sensitivity))
        try:
            return self._paid_for(buy, left)
        except OutOfReach as error:
            arms = before.reaches_after(question, buy.strategy, buy.noise, confidence)
            raise OutOfReach(error.needed, left, dearest(arms)) from None

    def price(self, noise: Noise, parts: Sequence[Sensitivity] = (Sensitivity(1, 1),)) -> float:
        """The cost of noise in the session's currency, to the precision of floats.

        Args:
            noise: of each value.
            parts: what one record moves each part of a strategy by at most.
        """
        funds, scale = self._funds, float(noise.scale)
        if self.pure:
            return funds.gamma * sum(part.absolute for part in parts) / scale
        if noise.kind == "laplace":
            return sum(laplace_cost(scale, funds.order, funds.gamma * part.absolute) for part in parts)
        return funds.order * funds.gamma**2 * sum(part.squared for part in parts) / (2 * scale**2)

    def _near(self, question: Question, measurement: Counts, known: Unbiased, *, values: FloatArray) -> FloatArray:
        """Values no farther from what was measured for the question itself than its noise makes likely; where all that
        was measured tells an answer better than that by half, no farther from what this tells."""
        measured, variances = own(question, measurement)
        if measurement.noise.kind == "laplace":
            reach = np.sqrt(variances / 2)
        else:
            reach = (CELL_REACH if question.shape else REACH) * np.sqrt(variances)
        better = 2 * known.variances < variances
        if better.any():
            reach = np.where(better, (CELL_REACH if question.shape else REACH) * np.sqrt(known.variances), reach)
            measured = np.where(better, known.values, measured)
        return np.clip(values, measured - reach, measured + reach)

    # Kinds of noise.

    def noise(self, share: float, parts: Sequence[Sensitivity] = (Sensitivity(1, 1),)) -> Noise | None:
        """The noise of least variance that a share pays for, in the session's currency; None where it pays for none to
        speak of.

        Args:
            share: what is paid.
            parts: what one record moves each part of a strategy by at most.
        """
        gamma = self._funds.gamma
        sensitivity = [gamma * part.absolute for part in parts]
        squared = gamma**2 * sum(part.squared for part in parts)
        # Scales may pass the greatest by what a strategy multiplies its counts by.
        most = GREATEST_SCALE * max(part.absolute for part in parts)
        found = least_noise(share, self._funds.order, sensitivity, squared, most, pure=self.pure)
        return None if found is None else Noise(found[0], found[1], 0)

    def _marginal(self, attributes: tuple[int, ...]) -> Marginal:
        return Marginal.of(self._sizes, dict.fromkeys(attributes))

    def _start(self, attribute: int) -> Partition:
        """The cells that an attribute is counted in before anything is asked of it."""
        return self.residuals.starting.get(attribute) or Partition.singles(self._sizes[attribute])

    def _starting(self, attributes: tuple[int, ...]) -> Marginal:
        return Marginal.of(self._sizes, {a: self.residuals.starting.get(a) for a in attributes})


def _serve(pairs: Sequence[Marginal], questions: int) -> bool:
    """Whether two-way marginals at the opening serve so many questions: where what a sum over a quarter of the cells of
    one would be off by, squared, is not many times that of a release for each question."""
    cells = sum(math.prod(pair.sizes) for pair in pairs)
    return cells / (4 * TWO_WAYS_PART) <= WORSE * questions


def own(question: Question, measurement: Counts) -> tuple[FloatArray, FloatArray]:
    """The estimate of a question from a measurement of all its attributes: values and their variances."""
    marginal = measurement.marginal
    partitions, shape = [], []
    for k, attribute in enumerate(question.attributes):
        if attribute in marginal.attributes:
            axis = marginal.attributes.index(attribute)
            partitions.append(marginal.partition(axis))
        else:
            partitions.append(question.partition(k))
        shape.append(partitions[-1].cells)
    values = measurement.onto(frozenset(question.attributes))
    variance = measurement.variance * (marginal.cells // values.size)
    values = values.reshape(shape)
    if isinstance(question, Sum):
        weights = question.on(partitions)
        return np.asarray((values * weights).sum()), np.asarray(variance * float(np.square(weights).sum()))
    return question.of(values, partitions), question.of(np.full(values.shape, variance), partitions)


def _bins(start: Partition) -> Partition:
    """An attribute as it is counted in two-way marginals at the opening: in bins of its starting cells where these are
    many."""
    count = start.cells
    if count <= MOST_BINS:
        return start
    # Of equal numbers of cells where that gives enough of them: such bins enter the closed form.
    least = MOST_BINS // 2 if count == start.size else LEAST_BINS
    bins = next((n for n in range(MOST_BINS, least, -1) if count % n == 0), MOST_BINS)
    return Partition.of((np.arange(count) * bins // count)[start.labels])


def _summed_cells(question: Question, whole: Marginal) -> float:
    """How many cells of its whole marginal the answer to a question sums, as squares of its weights tell it: the fewer
    of its own and the others', attribute by attribute where the weights are a product. One for the cells of a table."""
    cells = [whole.partition(k) for k in range(len(whole.attributes))]
    if isinstance(question, Product):
        return math.prod(_spread(vector[p.members]) for vector, p in zip(question.vectors, cells, strict=True))
    if not isinstance(question, Sum) or not question.attributes:
        return 1.0
    return max(_spread(question.on(cells).reshape(-1)), 1.0)


def _spread(weights: FloatArray) -> float:
    """The sum of squares of weights brought to [0, 1], or of their complements, over that of different ones alone."""
    low, high = float(weights.min()), float(weights.max())
    unit = (weights - low) / (high - low)
    different = np.unique(unit)
    return min(
        float(unit @ unit / (different @ different)),
        float((1 - unit) @ (1 - unit) / ((1 - different) @ (1 - different))),
    )
