"""The policy of a session on a graph or a matrix: predict, then pay.

Degrees are measured at the opening, and from them every cut is expected to be something (:mod:`.expectation`). Each
question is then predicted from that and from all cuts measured so far, with a standard error
(:mod:`.cut_posterior`). Where that is a small part of what the question's share of the remaining budget would buy, the
prediction is the answer and nothing is paid; else the share buys a measurement, from which later questions are
predicted too. Early questions get larger shares, as more is left to be learnt from them. Small graphs are measured
edge by edge at the opening, and few questions one by one, with pure noise, where that is the better bargain.

All decisions follow from public things: what the session may pay, the questions, and recorded values. Everything here
is told in cells from 0 to 1, those of a matrix moved and scaled by its bounds.

Constants, each with its reason, are in docs/graphs.md.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt
from scipy.special import digamma

from app.estimation.graphs.cells import EdgeValues, SumOfSums, Sums, of_sums
from app.estimation.graphs.cut_posterior import CutPosterior, Known
from app.estimation.graphs.expectation import averaged, expectation
from app.estimation.graphs.scales import Scales
from app.estimation.scores import Scores
from app.measurements.strategies.edges import CellKind
from app.spaces.cuts import CutQuestion
from app.spaces.tensor import FloatArray

#: A question is paid for where its standard error passes this part of what its share buys, or it is among the first.
PAID_FROM, FIRST = 0.4, 100
#: Shares fall as one over the number of the question and so many, and as many more as these are times the number of
#: questions: few questions teach little, and get shares that are more alike.
EARLY, FEW = 200.0, 1e5
#: Shares of so many questions to come are added one by one.
_SUMMED = 1 << 12
#: Standard deviations of its own measured value within which an answer is shown: an interval of 95% holds it.
REACH = 1.9
#: A measurement is kept where what was unknown is more than this part of its variance, or fewer than so many are kept.
WORTH_KEEPING, KEPT_ANYHOW = 0.02, 50
#: Factors are found anew when so many were measured, then half as many again, and from so many on twice as many.
_REFIT, _SLOWLY = 4, 200
#: Where the number of questions is not declared it is taken to be twice those asked and so many.
_UNDECLARED = 100
#: What nothing else tells of is paid for then as if as many purchases were to come as there were, and so many.
_UNKNOWN = 4
#: What the square of predictions' errors over that of their standard errors is held above.
_LEAST_KAPPA = 1.0
#: A question that is less like those that were kept is not about a structure that others follow, too: its prediction is
#: off by other multiples of what was foretold, and measuring it teaches nothing of others.
ALIKE = 3.0
#: Questions from whose edges the factor is found where edges alone were measured, and when it is found anew.
_LOOKED = 300

#: How a session pays: ``degrees`` and then questions, all ``edges`` or all ``sums`` at once and nothing after, few
#: questions one by one, or ``free``, nothing.
GraphMode = Literal["degrees", "edges", "sums", "laplace", "free"]


@dataclass(frozen=True)
class GraphFunds:
    """The budget that a session may pay from.

    Attributes:
        mode: how it pays.
        questions: how many are declared, None where not.
    """

    mode: GraphMode
    questions: int | None


@dataclass(frozen=True)
class Prediction:
    """The prediction of a question before it was paid for, in cells, and its standard error."""

    value: float
    standard_error: float


@dataclass(frozen=True, eq=False)
class Shown:
    """Answers, in cells.

    Attributes:
        values: shown.
        unbiased, errors: the best linear unbiased values and their standard errors; NaN and infinite where there are
            none.
        deviations: the model's standard deviations of the values.
    """

    values: FloatArray
    unbiased: FloatArray
    errors: FloatArray
    deviations: FloatArray


class _Measured:
    """All that was measured of numbers by themselves, each known by its name wherever it was measured."""

    def __init__(self) -> None:
        self.places: dict[Hashable, int] = {}
        #: Precisions, and values weighed by them: of all measurements, and of those the posterior has not taken in. The
        #: last number was never measured.
        self._sums = np.zeros((2, 2, 1))

    def add(self, names: Iterable[Hashable], values: FloatArray, variance: float, apart: FloatArray) -> None:
        """Take in a value of each of some names, which differ; ``apart`` is one where the posterior has not."""
        places = [self.places.setdefault(name, len(self.places)) for name in names]
        if len(self.places) >= self._sums.shape[2]:
            self._sums = np.pad(self._sums, [(0, 0), (0, 0), (0, len(self.places) + 1)])
        told = np.stack([np.ones(len(values)), values]) / variance
        self._sums[..., places] += np.stack([told, told * apart], axis=1)

    @np.errstate(divide="ignore", invalid="ignore")
    def of(self, names: Iterable[Hashable]) -> FloatArray:
        """By all, and by those apart: values and their variances, NaN and infinite of what was never measured."""
        precision, weighted = self._sums[..., [self.places.get(name, -1) for name in names]]
        return np.stack([weighted / precision, 1 / precision], axis=1)


@dataclass(eq=False)
class Learnt:
    """The measurements of a graph or a matrix before the first question.

    Attributes:
        degrees: released sums of rows and columns, and the variance of each.
        edges: values of released cells, and the variance of each.
        asked: questions that were measured at once, the name of each of their values, these, and the variance of each;
            of values that are no cuts there are no questions.
    """

    degrees: list[Sums] = field(default_factory=list)
    edges: list[tuple[npt.NDArray[np.float32], float]] = field(default_factory=list)
    asked: list[tuple[Sequence[CutQuestion], Sequence[Hashable], FloatArray, float]] = field(default_factory=list)


class GraphPolicy:
    """The policy of a session on a graph or a matrix.

    Args:
        kind: of the cells.
        shape: rows and columns.
        funds: what may be paid.
        learnt: before the first question.
    """

    def __init__(self, kind: CellKind, shape: tuple[int, int], funds: GraphFunds, learnt: Learnt) -> None:
        self._funds, self._kind = funds, kind
        self.edges = _edges(kind, learnt)
        #: Sums of rows and columns, where they are not beside edges.
        self._sums = averaged(learnt.degrees) if learnt.degrees and self.edges is None else None
        self._found: WeakKeyDictionary[CutQuestion, SumOfSums | None] = WeakKeyDictionary()
        known = learnt.degrees + ([] if self.edges is None else [self.edges.sums])
        self.posterior = CutPosterior(expectation(kind, shape, known))
        self._asked = self._measured = 0
        self._next_refit, self._next_look = _REFIT, 2 * _REFIT
        self._scores = Scores(_LEAST_KAPPA)
        #: Of questions that are unlike all that were kept, and of the others.
        self._unlike, self._scales = Scales(), Scales()
        #: What was measured last, and how it is shown.
        self._drawn: tuple[Hashable, float] = None, 0.0
        self._measures = _Measured()
        #: Of questions asked, their variances in three parts, what edges say beside the expectation, and its variance.
        self._looked: list[tuple[FloatArray, float, float]] = []
        for questions, names, values, variance in learnt.asked:
            self._learn_all(questions, names, values, variance)
        if self.posterior.kept >= _REFIT:
            self.posterior.refit()

    @property
    def kappa(self) -> float:
        """The factor of predictions' standard errors: how far the last ones were off."""
        return self._scores.kappa

    @property
    def questions(self) -> int:
        """How many there are taken to be."""
        declared = self._funds.questions
        return 2 * self._asked + _UNDECLARED if declared is None else max(declared, self._asked + 1)

    def working_bytes(self, places: int) -> int:
        """Bytes that a question which weighs so many nodes takes for a while, and what is new of learning from it."""
        return self.posterior.working_bytes(places, refitted=self._measured + 1 >= self._next_refit)

    # ------------------------------------------------------------------ what is bought

    def part(self, *, alone: bool = False) -> float:
        """The part of what is left that the next question may take.

        Args:
            alone: whether nothing but its own measurement tells of it; that of cuts is foretold from degrees.
        """
        planned = self._planned_part()
        if alone and self._funds.questions is None:
            return max(planned, 1 / (1 + self._measured + _UNKNOWN))
        return planned

    def _planned_part(self) -> float:
        if self._funds.mode == "laplace":
            return 1 / (self.questions - self._asked)
        first, count = self._asked + EARLY + FEW / self.questions, self.questions - self._asked
        if count > _SUMMED:
            return float(1 / (first * (digamma(first + count) - digamma(first))))
        # The same without the loss of digits that differences of large numbers have.
        own = 1 / (first + np.arange(count))
        return float(own[0] / own.sum())

    def predicted(self, question: CutQuestion) -> Prediction:
        """The prediction of a question."""
        value, deviation = self._mixed(question, self.posterior.known(question))
        return Prediction(_cut(value, question.bounds), deviation)

    def worth(self, question: CutQuestion, prediction: Prediction, variance: float, slack: float = 0.0) -> bool:
        """Whether a question is to be paid for, where its share buys noise of a variance.

        ``slack`` is the part by which the prediction is taken to be worse than it is.
        """
        if self._funds.mode in ("edges", "sums", "free"):
            return False
        low, high = question.bounds
        deviation = math.sqrt(variance)
        if max(prediction.value - low, high - prediction.value) <= PAID_FROM * deviation:
            # The noise would be larger than the answer can be.
            return False
        if self._asked < FIRST and self.edges is None:
            return True
        return (1 + slack) * self.kappa * prediction.standard_error > PAID_FROM * deviation

    # ------------------------------------------------------------------ what is known

    def note(self, question: CutQuestion | None = None) -> None:
        """Take note of a question that was asked; None where it is no single cut."""
        if question is not None:
            self._look(question)
        self._asked += 1

    def record(
        self, question: CutQuestion, name: Hashable, prediction: Prediction, value: float, variance: float
    ) -> None:
        """Take note of a question that was asked, and of what was measured for it.

        Args:
            question: that was asked.
            name: of the question.
            prediction: what was expected of it.
            value: that was measured, in cells.
            variance: of its noise.
        """
        self._scores.learn((value - prediction.value) ** 2, variance, prediction.standard_error)
        self._drawn = None, 0.0
        if self.edges is None and name not in self._measures.places:
            scales = self._scales_of(self.posterior.known(question))
            residual, foretold = value - prediction.value, (prediction.standard_error / self._told(scales)) ** 2
            scales.learn(residual, foretold, variance)
            self._drawn = name, prediction.value + scales.posterior(residual, foretold, variance)[0]
        self.note(question)
        self._learn_all([question], [name], np.array([value]), variance)
        self._refit()

    def record_all(
        self, questions: Sequence[CutQuestion], names: Sequence[Hashable], values: FloatArray, variance: float
    ) -> None:
        """Take note of many questions that were asked as one, and of what was measured for them.

        ``questions`` are those that others are to learn from; there may be none.
        """
        self.note()
        self._learn_all(questions, names, values, variance)
        self._refit()

    def _refit(self) -> None:
        self._measured += 1
        if self._measured >= self._next_refit and self.posterior.kept:
            n = self._measured
            self._next_refit = math.ceil(1.5 * n) if n < _SLOWLY else 2 * n
            self.posterior.refit()

    def shown(self, questions: Sequence[CutQuestion], names: Sequence[Hashable]) -> Shown:
        """The estimates that are shown of questions."""
        values, deviations = np.array([self._mixed(each, self.posterior.known(each)) for each in questions]).T
        unbiased, variances = self.unbiased(questions, names)
        errors = np.sqrt(variances)
        # What was measured was not kept: it moves its own question all the same.
        apart, noise = self._measures.of(names)[1]
        own = np.float_power(deviations, 2)
        values = np.where(noise < np.inf, values + own / (own + noise) * (apart - values), values)
        last, drawn = self._drawn
        values[[name == last for name in names]] = drawn
        # Where there is no unbiased value nothing holds them.
        held = np.fmin(np.fmax(values, unbiased - REACH * errors), unbiased + REACH * errors)
        low, high = np.array([each.bounds for each in questions]).T
        return Shown(np.clip(held, low, high), unbiased, errors, self.kappa * deviations)

    def alone(self, names: Sequence[Hashable], bounds: tuple[FloatArray, FloatArray]) -> Shown:
        """The estimates that are shown of measured values by themselves."""
        values, variances = self._measures.of(names)[0]
        errors = np.sqrt(variances)
        return Shown(np.clip(values, *bounds), values, errors, errors)

    @np.errstate(divide="ignore", invalid="ignore")
    def unbiased(self, questions: Sequence[CutQuestion], names: Sequence[Hashable]) -> FloatArray:
        """The best unbiased values and their variances, NaN and infinite where there are none; of what is no cut there
        are no questions.
        """
        values, variances = self._measures.of(names)[0]
        precision, weighted = 1 / variances, np.nan_to_num(values / variances)
        for place, question in enumerate(questions):
            # Of a node and itself there is no cell: a question may weigh nothing.
            told = self.summed(question)
            if self.edges is not None and question.square > 0:
                value, variance = self.edges.of(question)
            elif told is not None:
                value, variance = told.value, told.variance
            else:
                continue
            precision[place] += 1 / variance
            weighted[place] += value / variance
        return np.stack([weighted / precision, 1 / precision])

    def summed(self, question: CutQuestion) -> SumOfSums | None:
        """A question by released sums of rows and columns; None where these do not tell it, or are beside edges. Found
        once, as an answer asks for it several times."""
        if self._sums is None:
            return None
        if question not in self._found:
            self._found[question] = of_sums(self._kind, question, self._sums)
        return self._found[question]

    # ------------------------------------------------------------------ within

    def _mixed(self, question: CutQuestion, known: Known) -> tuple[float, float]:
        """The posterior's mean and deviation, with what the edges say of this question where they were measured; of a
        question that is unlike all that were kept, the deviation by which predictions of such questions are off.
        """
        if self.edges is None or question.square == 0:
            return known.mean, known.deviation * self._told(self._scales_of(known))
        value, noise = self.edges.of(question)
        sensitivity, variance = self._scales.posterior(value - known.mean, known.deviation**2, noise)
        return known.mean + sensitivity, math.sqrt(variance)

    def _scales_of(self, known: Known) -> Scales:
        """How far predictions of such questions are off."""
        likeness = self.posterior.likeness(known.rows)
        return self._scales if likeness is None or likeness >= ALIKE else self._unlike

    def _told(self, scales: Scales) -> float:
        """What the foretold deviation of such a question is multiplied by."""
        return scales.typical if scales is self._unlike else 1.0

    def _look(self, question: CutQuestion) -> None:
        """Where edges were measured, find by how much cells differ from what is expected, from all questions so far."""
        if self.edges is None or question.square == 0:
            return
        value, variance = self.edges.of(question)
        known = self.posterior.known(question)
        self._scales.learn(value - known.mean, known.deviation**2, variance)
        if len(self._looked) >= _LOOKED:
            return
        rows, prior = self.posterior.rows(question), self.posterior.expected.value(question)
        self._looked.append((rows.parts[:, -1], value - prior, variance))
        if len(self._looked) >= self._next_look:
            self._next_look *= 2
            parts, residuals, variances = (np.array(each) for each in zip(*self._looked, strict=True))
            self.posterior.fit_alone(parts.T, residuals, variances)

    def _learn_all(
        self, questions: Sequence[CutQuestion], names: Sequence[Hashable], values: FloatArray, variance: float
    ) -> None:
        apart = np.ones(len(values))
        for place, (question, value) in enumerate(zip(questions, values.tolist(), strict=False)):
            apart[place] = not self._kept(question, value, variance)
        self._measures.add(names, values, variance, apart)

    def _kept(self, question: CutQuestion, value: float, variance: float) -> bool:
        """Learn from a measured value where that is worth its while; whether it was."""
        if self._funds.mode == "laplace" or self.posterior.is_full:
            return False
        known = self.posterior.known(question)
        worth = known.deviation**2 > WORTH_KEEPING * variance or self.posterior.kept < KEPT_ANYHOW
        if not worth or not self.posterior.has_room(question):
            return False
        self.posterior.learn(known, value, variance)
        return True


def _cut(value: float, bounds: tuple[float, float]) -> float:
    return min(max(value, bounds[0]), bounds[1])


def _edges(kind: CellKind, learnt: Learnt) -> EdgeValues | None:
    """All measurements of cells as one, each weighed by its precision, and all of degrees beside them."""
    if not learnt.edges:
        return None
    (matrix, variance), *others = learnt.edges
    for more, noise in others:
        share = np.float32(noise / (variance + noise))
        matrix = share * matrix + (1 - share) * more
        variance = variance * noise / (variance + noise)
    if not learnt.degrees:
        return EdgeValues(kind, matrix, variance)
    return EdgeValues(kind, matrix, variance, averaged(learnt.degrees))
