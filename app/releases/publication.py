"""Publications: from all that was measured, tables that agree with one another.

Each table that is published counts the same made records. So they add up to one another and to the number of records,
exactly, and every count is whole and not negative, whatever tables there are. The records are looked for so that the
tables come near to the best answers of each table alone: they start as the synthetic records of a fit
(:mod:`.synthetic_table`), and some of them are moved from cells that have too many to cells that have too few,
attribute by attribute and to no combination that is declared not to occur, as long as that lessens

    sum over tables t of w_t * sum over cells c of (n_t(c) - y_t(c))^2,

n being the counts of the records, y the best answers and w_t one over the mean square of the standard errors of y_t. A
move of one record from cell c to c' of table t alters that by ``2 w_t (d(c') - d(c) + 1)``, d being the differences
n - y; of many that are made at once the sum is looked at before they are.

What is published is a function of what was released, so it costs nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from app.declarations.errors import InvalidRequest
from app.estimation.intervals import Estimates
from app.estimation.tables.dense_fit import whole_table
from app.estimation.tables.estimates import contradicted, possible
from app.estimation.tables.local_fit import LocalFits
from app.estimation.tables.residuals import Residuals
from app.estimation.tails import normal_quantile
from app.measurements.noise import Noise
from app.measurements.noise_search import GREATEST_SCALE, cheapest_noise
from app.measurements.strategies.tables import TableStrategy
from app.patience import Progress
from app.releases.table_results import CONFIDENCE, Answers, Made, Records, Table, counted, estimated
from app.releases.workloads import TableWorkload
from app.spaces.partition import Partition
from app.spaces.queries.statistic import CompiledStatistic
from app.spaces.questions import Cells, Question, Sum
from app.spaces.table import TableSpace
from app.spaces.tensor import FloatArray, IntArray
from app.spaces.workload_request import WorkloadRequest
from app.spaces.zeros import NO_ZEROS, Zeros

#: Of manifests.
FORMAT = 2
#: What is said of publications of counts.
NOTES = (
    "All tables count the same made records, which were looked for so that the tables come near to the best answers of "
    "each alone. So they add up to one another, and every value is a whole number, none negative.",
    f"low and high: a {CONFIDENCE:.0%} interval of the true count, by the noise of what was measured; it also holds "
    "the value. It says nothing of what bounds of values or of records a person cut off when the data were registered.",
    "standard_error: how far the value may be off, as far as it is known.",
    "What was measured has noise that protects whoever is in the data; the tables are made of that alone.",
)
#: What is said of those of statistics too.
_WITH_STATISTICS = (
    "All tables of counts, and all shares, are of the same made records, which were looked for so that the tables come "
    "near to the best answers of each alone. So they agree with one another: counts are whole numbers that add up, "
    "none negative, and shares are quotients of counts.",
    "Other statistics, and all that is weighted, are not of made records: each follows by itself from what was "
    "measured, in the unit of its question. A mean need not be a sum over a count to the last digit.",
    "A statistic without a value: nothing that was measured tells it, or it may be of nobody.",
    f"low and high: a {CONFIDENCE:.0%} interval of the truth, by the noise of what was measured; it also holds the "
    "value. It says nothing of what bounds of values or of records a person cut off when the data were registered.",
    *NOTES[2:],
)
#: Rounds of moves at most; in each one attribute's values are looked at for so many records.
_ROUNDS, _LOOKED_AT = 600, 1 << 14
#: The part of the moves that lessen the distance which is made at once, at first, and the least of it.
_PART, _LEAST_PART = 0.5, 1e-3


#: No table's answers count as being known better than to this variance.
_LEAST_VARIANCE = 1e-2
#: How far floating point may be off a whole number.
_ROUNDING = 1e-6
#: The most records that are made.
MOST_RECORDS = 10**7


@dataclass(frozen=True, eq=False)
class Target:
    """Counts that records are to be near to: each the number of those in some cells of a table.

    Attributes:
        axes: of the records' attributes those of the table, ascending.
        cells: for each the table's cells, as a partition of the records' own.
        sums: for each cell of the table, row by row, the count that it is part of.
        counts: wanted.
        weight: of a squared difference.
    """

    axes: tuple[int, ...]
    cells: tuple[Partition, ...]
    sums: IntArray
    counts: FloatArray
    weight: float

    def places(self, codes: IntArray) -> IntArray:
        """For each record the number of its cell."""
        found: IntArray = np.zeros(len(codes), np.int64)
        for axis, partition in zip(self.axes, self.cells, strict=True):
            found = found * partition.cells + partition.labels[codes[:, axis]]
        return found

    def counted(self, places: IntArray) -> IntArray:
        """The counts of records in these cells."""
        numbers: IntArray = np.bincount(self.sums[places], minlength=len(self.counts))
        return numbers

    def along(self, axis: int) -> IntArray:
        """For each value of an attribute its part in the number of a cell."""
        place = self.axes.index(axis)
        stride = math.prod(partition.cells for partition in self.cells[place + 1 :])
        steps: IntArray = self.cells[place].labels * stride
        return steps


def moved(
    codes: IntArray,
    sizes: Sequence[int],
    targets: Sequence[Target],
    rng: np.random.Generator,
    progress: Progress,
    zeros: Zeros = NO_ZEROS,
) -> IntArray:
    """Records nearer to the targets (module docstring): as many, with other values.

    Args:
        codes: a row for each record, a column for each attribute.
        sizes: number of values of each attribute.
        targets: at least one.
        rng: decides which records are looked at.
        progress: told from time to time.
        zeros: what no record is, before and after.
    """
    codes = codes.copy()
    places = [target.places(codes) for target in targets]
    off = [target.counted(place) - target.counts for place, target in zip(places, targets, strict=True)]
    named = {axis: [k for k, target in enumerate(targets) if axis in target.axes] for axis in range(len(sizes))}
    parts = dict.fromkeys((axis for axis in named if named[axis]), _PART)
    moved_any = False
    for turn in range(_ROUNDS):
        progress(turn / _ROUNDS)
        going = [axis for axis in parts if parts[axis] >= _LEAST_PART]
        if not going:
            # What has moved along one attribute since lets others move.
            if not moved_any:
                break
            parts, moved_any = dict.fromkeys(parts, _PART), False
            going = list(parts)
        axis = going[turn % len(going)]
        rows = rng.choice(len(codes), min(_LOOKED_AT, len(codes)), replace=False)
        gains = np.zeros((len(rows), sizes[axis]))
        for k in named[axis]:
            gains += targets[k].weight * _gains(targets[k], axis, codes[rows, axis], places[k][rows], off[k])
        choices = zeros.choices(codes[rows], axis, range(len(sizes)))
        if choices is not None:
            gains = np.where(choices.of(), gains, 0.0)
        best = gains.argmax(axis=1)
        gain = gains[np.arange(len(rows)), best]
        useful = np.flatnonzero(gain > 0)
        taken = useful[np.argsort(-gain[useful], kind="stable")[: math.ceil(parts[axis] * len(useful))]]
        rows, values = rows[taken], best[taken]
        lessened, reached = 0.0, {}
        for k in named[axis]:
            target, along = targets[k], targets[k].along(axis)
            to = places[k][rows] + along[values] - along[codes[rows, axis]]
            after = off[k] + target.counted(to) - target.counted(places[k][rows])
            lessened += target.weight * float(off[k] @ off[k] - after @ after)
            reached[k] = to, after
        if lessened <= 0:
            # Too many at once have gone to the same cells.
            parts[axis] /= 2
            continue
        codes[rows, axis], moved_any = values, True
        for k, (to, after) in reached.items():
            places[k][rows], off[k] = to, after
    return codes


def _gains(target: Target, axis: int, values: IntArray, places: IntArray, off: FloatArray) -> FloatArray:
    """By how much half of the squared differences from a target lessens if a record alone has another value of an
    attribute: a row for each record, a column for each value.

    Args:
        target: which names the attribute.
        axis: of the attribute.
        values: that the records have.
        places: the numbers of their cells.
        off: the differences.
    """
    along = target.along(axis)
    now = target.sums[places]
    to = target.sums[(places - along[values])[:, None] + along]
    gains: FloatArray = np.where(to == now[:, None], 0.0, off[now][:, None] - off[to] - 1.0)
    return gains


def moves_looked_at(workload: TableWorkload, records: float | None) -> float:
    """How often at most it is looked at what a value of a record would alter of a table."""
    sizes = dict(zip(workload.marginal.attributes, workload.marginal.shape, strict=True))
    named = sum(sizes[attribute] for question in workload.questions for attribute in question.attributes)
    rows = _LOOKED_AT if records is None else min(records, _LOOKED_AT)
    return _ROUNDS * rows * named / max(1, len(sizes))


def notes_of(workload: TableWorkload) -> list[str]:
    """What is said of a publication."""
    return list(_WITH_STATISTICS if workload.statistics else NOTES)


def stated(
    space: TableSpace, table: Question | CompiledStatistic, number: int, asked: WorkloadRequest, total: int | None
) -> dict[str, Any]:
    """What a manifest says that a table of a publication is of.

    Args:
        space: of the data set.
        table: what it answers.
        number: of the table, from 1 on.
        asked: all that is published, in words.
        total: the sum of its values.
    """
    if isinstance(table, CompiledStatistic):
        listed = asked.queries or asked.recorded or ()
        return {"question": listed[number - 1], "counts": None, "sum": None}
    return {"counts": counted(space, table), "sum": total}


def published(workload: TableWorkload, residuals: Residuals, seed: int, progress: Progress) -> Made:
    """Tables that agree with one another, each count with its interval, and the records that they count.

    Values are whole, and so are the ends of intervals: a count that lies between two numbers lies between the whole
    numbers that do.

    Args:
        workload: the tables, all of them of counts.
        residuals: which have taken in all that was measured.
        seed: of what is drawn at random.
        progress: told from time to time.

    Raises:
        InvalidRequest: for more records than are made.
    """
    questions = workload.questions
    if not questions:
        return Made([], Records((), (), np.zeros((0, 0), np.int64)), converged=True)
    rng = np.random.Generator(np.random.Philox(key=seed))
    table, fits = Table.of(workload, residuals), LocalFits(residuals)
    number = round(table.total)
    if number > MOST_RECORDS:
        raise InvalidRequest(
            f"a publication counts made records, at most {MOST_RECORDS:,}, and there are about {number:,}: ask for the "
            "tables one by one"
        )
    best = _Best(residuals, fits)
    targets = []
    for place, question in enumerate(questions):
        targets.append(_target(question, table, best, number))
        progress(0.4 * (place + 1) / len(questions))
    if table.axes:
        codes = table.records_like(fits, questions, number, rng, lambda part: progress(0.4 + 0.2 * part))
    else:
        codes = np.zeros((number, 0), np.int64)
    codes = moved(codes, table.sizes, targets, rng, lambda part: progress(0.6 + 0.4 * part), table.zeros)
    answers = []
    for question, target in zip(questions, targets, strict=True):
        counts = np.bincount(target.places(codes), minlength=question.cells).astype(np.float64)
        values = question.of(counts.reshape([cells.cells for cells in question.partitions]), question.partitions)
        answers.append(Answers(question, _whole(estimated(question, values, residuals, best.standard_errors))))
    return Made(answers, table.records(codes), fits.converged)


@dataclass(frozen=True)
class Missing:
    """A table whose intervals reach farther than is wanted.

    Attributes:
        table: its number, from 1 on.
        half_width: how far the farthest of them reaches from the unbiased value, in counts; infinite where nothing that
            was measured tells one.
        epsilon: what at most has to be spent on the table by itself until none does; infinite where no noise is so
            small.
    """

    table: int
    half_width: float
    epsilon: float

    def document(self) -> dict[str, float | None]:
        """As JSON."""
        told = {"half_width": self.half_width, "epsilon": self.epsilon}
        return {"table": self.table, **{name: each if math.isfinite(each) else None for name, each in told.items()}}


#: Who looks for the least noise anew, as a session does that is asked for it, comes as near to it as this.
_SURELY = 1e-5


def missing(
    questions: Sequence[Question], residuals: Residuals, within: float, unit_epsilon: float
) -> Iterator[Missing]:
    """The tables whose unbiased intervals reach farther than is wanted, and what would mend that.

    It follows from what was released, and from nothing else. What is measured for one table may serve the next: all of
    them together cost at most the sum.

    Args:
        questions: the tables.
        residuals: which have taken in all that was measured.
        within: how far intervals may reach, in counts.
        unit_epsilon: the epsilon that counts of a table cost with Gaussian noise of variance 1.
    """
    for number, question in enumerate(questions, start=1):
        known = residuals.unbiased(question)
        told = bool(known.estimable.all())
        farthest = float(residuals.reaches(question, known, CONFIDENCE).max()) if told else math.inf
        if farthest > within:
            noise = _enough(TableStrategy.of(question.marginal_of(residuals.sizes)), question, residuals, within)
            price = math.inf if noise is None else unit_epsilon / float(noise.scale) ** 2
            yield Missing(number, farthest, price * (1 + _SURELY))


def _enough(strategy: TableStrategy, question: Question, residuals: Residuals, within: float) -> Noise | None:
    """About the most Gaussian noise with which one more measurement makes intervals reach no farther; None where there
    is none so small.
    """
    allowed = (within / normal_quantile(CONFIDENCE)) ** 2
    return cheapest_noise(
        {"gaussian": math.sqrt(residuals.sufficient_variance(question, strategy, allowed))},
        lambda noise: bool(residuals.reaches_after(question, strategy, noise, CONFIDENCE).max() <= within),
        lambda noise: float(noise.scale) ** -2,
        most=GREATEST_SCALE,
    )


class _Best:
    """The best answer of each question alone, as a session shows it."""

    def __init__(self, residuals: Residuals, fits: LocalFits) -> None:
        self._residuals, self._fits = residuals, fits
        self._whole = whole_table(residuals, fits.shares)

    def values(self, question: Question) -> FloatArray:
        """What is shown of it."""
        fit, unbiased = self._whole or self._fits.best(question), self._residuals.unbiased(question)
        values = fit.values(question)
        if contradicted(values, unbiased):
            values = unbiased.values
        return np.clip(values, *possible(question, self._residuals.public_total))

    def standard_errors(self, question: Question) -> FloatArray:
        """Those of the model."""
        return self._fits.best(question).standard_errors(question)

    def variance(self, question: Question) -> float:
        """The mean square of standard errors: what the values are worth."""
        if self._whole is not None:
            return float(self._residuals.unbiased(question).variances.mean())
        return self._fits.best(question).standard_error(question) ** 2


def _target(question: Sum | Cells, table: Table, best: _Best, records: int) -> Target:
    """The best answers of a question alone, of so many records, and what they are worth.

    Of a sum, whose weights are 0 and 1, it is how many records have each.
    """
    axes = tuple(table.axes.index(attribute) for attribute in question.attributes)
    cells = tuple(own.over(table.cells[axis]) for own, axis in zip(question.partitions, axes, strict=True))
    value = best.values(question)
    if isinstance(question, Sum):
        counted = min(max(float(value), 0.0), float(records))
        sums, counts = (
            question.on(question.partitions).astype(np.int64).reshape(-1),
            np.array([records - counted, counted]),
        )
    else:
        sums, counts = np.arange(value.size), value.reshape(-1) * (records / max(float(value.sum()), 1.0))
    return Target(axes, cells, sums, counts, 1 / max(best.variance(question), _LEAST_VARIANCE))


def _whole(estimates: Estimates) -> Estimates:
    """The same with intervals that end at whole numbers, of values that are whole."""
    inward = np.ceil(estimates.lows - _ROUNDING), np.floor(estimates.highs + _ROUNDING)
    return replace(
        estimates, lows=np.minimum(estimates.values, inward[0]), highs=np.maximum(estimates.values, inward[1])
    )
