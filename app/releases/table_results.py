"""Results from a table's measurements: answers of a workload, and synthetic records.

Answers are the best linear unbiased values, the nearest possible table's, or those of a fit. Whatever the value shown,
its interval is that of the unbiased one where there is one, as in sessions (:mod:`app.estimation.tables.estimates`).

Fits of a whole table are over the attributes of the workload, each in the workload's cells. What was measured of other
attributes, or in cells that these do not sum to, is left out there, and serves where answers are estimated one by one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from app.estimation.intervals import Estimates
from app.estimation.tables.estimates import around
from app.estimation.tables.local_fit import MOST_FITTED, LocalFits
from app.estimation.tables.residuals import Residuals
from app.measurements.pieces import Contrast, Counts, pieces_of
from app.measurements.record import Measurement
from app.measurements.strategies.tables import TableStrategy
from app.patience import Progress
from app.releases.fitting import MOST_CELLS, fit, known_of, projection
from app.releases.synthetic_table import from_marginals, listed, rounded
from app.releases.workloads import Marginals, TableWorkload
from app.spaces.partition import Marginal, Partition
from app.spaces.queries.statistic import CompiledStatistic
from app.spaces.questions import Cells, Product, Question, Sum
from app.spaces.table import TableSpace
from app.spaces.tensor import Array, FloatArray, IntArray
from app.spaces.zeros import Zeros

#: The confidence of intervals.
CONFIDENCE = 0.95
#: The columns of numbers in tables, behind those of attributes.
NUMBERS = ("value", "standard_error", "low", "high")
#: The column of the parts at which quantiles are.
LEVEL = "q"
#: Conditions that tell more cells apart are not told in words.
_MOST_TOLD = 256


@dataclass(frozen=True, eq=False)
class Answers:
    """The answers of one question, in its shape and in counts."""

    question: Question
    estimates: Estimates


@dataclass(frozen=True, eq=False)
class Told:
    """The answers of a statistic, flat, in the order of its labels and in its own unit; NaN where there is none.

    Attributes:
        query: the statistic.
        estimates: of it.
        steps: of a statistic of made records, by how much at most one of them that moves changes each answer; None of
            others.
    """

    query: CompiledStatistic
    estimates: Estimates
    steps: FloatArray | None = None


def distinct(names: Iterable[str], taken: Collection[str]) -> list[str]:
    """Names for the columns of attributes: one that stands for another column has underscores behind it.

    Args:
        names: of the attributes.
        taken: those of the other columns.
    """
    found: list[str] = []
    for name in names:
        while name in taken or name in found:
            name += "_"
        found.append(name)
    return found


def columns_of(space: TableSpace) -> list[str]:
    """The column of each attribute in tables of answers, the same in all of them."""
    return distinct(space.names, ("question", "table", *NUMBERS))


def named_columns(space: TableSpace) -> list[str]:
    """The columns that tables of answers may have, in their order: those of attributes, and that of the parts at which
    quantiles are."""
    called = columns_of(space)
    return [*called, *distinct([LEVEL], called)]


def labels_of(space: TableSpace, answers: Answers | Told) -> dict[str, pa.Array]:
    """By column the label of each answer's cell, as text, in the answers' order; null of records without a value.

    Columns are those that the answers are told apart by, in the order of :func:`named_columns`.
    """
    *called, level = named_columns(space)
    if isinstance(answers, Told):
        groups = len(answers.query.base.labels)
        axes = [
            (called[space.names.index(axis["attribute"])] if place < groups else level, axis["labels"])
            for place, axis in enumerate(answers.query.labels)
        ]
    elif answers.question.shape:
        cells = zip(answers.question.attributes, answers.question.partitions, strict=True)
        axes = [(called[axis], space.values[axis].labels(partition.listed())) for axis, partition in cells]
    else:
        axes = []
    shape = [len(labels) for _, labels in axes]
    codes = np.indices(shape).reshape(len(shape), answers.estimates.values.size)
    found = {
        name: pa.array(list(labels)).cast(pa.string()).take(pa.array(own))
        for (name, labels), own in zip(axes, codes, strict=True)
    }
    return {name: found[name] for name in (*called, level) if name in found}


def counted(space: TableSpace, question: Question) -> list[dict[str, str]] | None:
    """Which records a single count is of: those that agree with any of these, each with the label of what some
    attributes are, by their columns. None of what has an answer for each cell, and where these would be very many.
    """
    if not isinstance(question, Sum) or question.cells > _MOST_TOLD:
        return None
    if isinstance(question, Product):
        cells = [[np.flatnonzero(vector) for vector in question.vectors]]
    else:
        parts = question.partitions
        cells = [
            [np.flatnonzero(part.labels == place) for place, part in zip(cell, parts, strict=True)]
            for cell in np.argwhere(question.on(parts))
        ]
    called = columns_of(space)
    return [
        {called[axis]: _label(space, axis, places) for axis, places in zip(question.attributes, cell, strict=True)}
        for cell in cells
    ]


def _label(space: TableSpace, axis: int, places: IntArray) -> str:
    (label,) = space.values[axis].labels([places])
    return "no value" if label is None else str(label)


@dataclass(frozen=True, eq=False)
class Records:
    """Synthetic records.

    Attributes:
        axes: the attributes that they have.
        cells: of each the cells that codes stand for.
        codes: a row for each record, a column for each attribute.
    """

    axes: tuple[int, ...]
    cells: tuple[Partition, ...]
    codes: IntArray


def unbiased(residuals: Residuals, questions: Sequence[Question], progress: Progress) -> list[Answers]:
    """The best linear unbiased values, not cut off where they are impossible."""
    found = []
    for number, question in enumerate(questions):
        known = residuals.unbiased(question)
        values, reaches = np.asarray(known.values), residuals.reaches(question, known, CONFIDENCE)
        estimates = Estimates(
            values, known.standard_errors, values - reaches, values + reaches, known.estimable, CONFIDENCE
        )
        found.append(Answers(question, estimates))
        progress((number + 1) / len(questions))
    return found


def nearest(
    workload: TableWorkload, residuals: Residuals, releases: Sequence[Measurement[TableStrategy]], progress: Progress
) -> tuple[list[Answers], bool]:
    """Answers of the nearest table that there can be to what was measured, and whether it was found.

    Raises:
        ValueError: for a table that is too large.
    """
    table = Table.of(workload, residuals)
    known = known_of(table.taken_in(releases))
    found = projection(
        table.sizes,
        known,
        table.total,
        at_most=residuals.public_total is None,
        possible=table.possible,
        progress=progress,
    )
    return [table.answers(question, found.counts, residuals) for question in workload.questions], found.converged


@dataclass(frozen=True, eq=False)
class Made:
    """A synthetic table; ``converged`` says whether every fit met its tolerance."""

    answers: list[Answers]
    records: Records
    converged: bool
    discrepancy: float | None = None


def synthetic(
    workload: TableWorkload,
    residuals: Residuals,
    releases: Sequence[Measurement[TableStrategy]],
    records: int | None,
    seed: int,
    progress: Progress,
) -> Made:
    """Answers of a fit to everything that was measured, and records like it.

    Args:
        workload: what is asked.
        residuals: which have taken in what was measured.
        releases: the same, one by one.
        records: how many to make; about as many as there are if left out.
        seed: of what is drawn at random.
        progress: told from time to time.
    """
    rng = np.random.Generator(np.random.Philox(key=seed))
    table = Table.of(workload, residuals)
    number = records or max(1, round(table.total))
    if isinstance(workload, Marginals) and workload.even and math.prod(table.sizes) <= MOST_CELLS:
        fitted = fit(
            table.sizes,
            known_of(table.taken_in(releases)),
            table.total,
            possible=table.possible,
            progress=lambda part: progress(part / 2),
        )
        answers = [table.answers(question, fitted.counts, residuals) for question in workload.questions]
        counts = rounded(fitted.counts, number, rng, progress=lambda part: progress((1 + part) / 2))
        return Made(answers, table.records(listed(counts, rng)), fitted.converged, fitted.discrepancy)
    fits = LocalFits(residuals)
    questions = workload.questions
    answers = []
    for place, question in enumerate(questions):
        answers.append(_local(question, residuals, fits))
        progress((place + 1) / (2 * len(questions)))
    codes = table.records_like(fits, questions, number, rng, lambda part: progress((1 + part) / 2))
    return Made(answers, table.records(codes), fits.converged)


def _local(question: Question, residuals: Residuals, fits: LocalFits) -> Answers:
    """The answer of a fit of its own."""
    fitted = fits.best(question)
    return Answers(question, estimated(question, fitted.values(question), residuals, fitted.standard_errors))


def estimated(
    question: Question, values: FloatArray, residuals: Residuals, errors: Callable[[Question], FloatArray] | None = None
) -> Estimates:
    """Values with the intervals of the unbiased ones.

    Args:
        question: what is asked.
        values: to be shown.
        residuals: which have taken in all that was measured.
        errors: standard errors of the values where there are no unbiased ones; unknown if left out.
    """

    def deviations() -> FloatArray:
        return np.full(question.shape, np.nan) if errors is None else errors(question)

    unbiased = residuals.unbiased(question)
    reaches = residuals.reaches(question, unbiased, CONFIDENCE)
    return around(question, values, unbiased, reaches, deviations, residuals.public_total, CONFIDENCE)


@dataclass(frozen=True, eq=False)
class Table:
    """The table over the attributes of a workload, each in the cells that the workload tells apart.

    Attributes:
        axes: the attributes.
        cells: of each the cells.
        total: the number of records, or the best estimate of it; positive.
        public: whether it is exact.
        zeros: what is declared not to occur, of these attributes in these cells.
    """

    axes: tuple[int, ...]
    cells: tuple[Partition, ...]
    total: float
    public: bool
    zeros: Zeros

    @classmethod
    def of(cls, workload: TableWorkload, residuals: Residuals) -> Table:
        """The table of a workload."""
        marginal = workload.marginal
        cells = tuple(marginal.partition(place) for place in range(len(marginal.attributes)))
        public = residuals.public_total is not None
        zeros = residuals.zeros.over(marginal.attributes, cells)
        return cls(marginal.attributes, cells, max(1.0, float(residuals.total.values)), public, zeros)

    @property
    def sizes(self) -> tuple[int, ...]:
        """Number of cells of each attribute."""
        return tuple(cells.cells for cells in self.cells)

    @property
    def every(self) -> Mapping[int, int]:
        """Number of values of each attribute."""
        return {axis: cells.size for axis, cells in zip(self.axes, self.cells, strict=True)}

    @property
    def possible(self) -> Array | None:
        """Which cells of a table that is held whole can hold a record; None where all can."""
        return self.zeros.possible(range(len(self.sizes)), [Partition.singles(n) for n in self.sizes])

    def taken_in(self, releases: Sequence[Measurement[TableStrategy]]) -> Residuals:
        """The measurements of this table: marginals and contrasts of its own cells, and marginals of sums of them."""
        residuals = Residuals(self.sizes, self.total if self.public else None, zeros=self.zeros)
        places = dict(zip(self.axes, range(len(self.axes)), strict=True))
        for release in releases:
            for moment, piece in pieces_of(release):
                if moment is not None or not isinstance(piece, Counts | Contrast):
                    continue
                own = self._own(piece.marginal, places, exactly=isinstance(piece, Contrast))
                if own is None or (isinstance(piece, Contrast) and not own.attributes):
                    continue
                units = piece.units.reshape(own.shape)
                residuals.add(type(piece)(own, piece.noise, units, piece.multiplier))
        return residuals

    def _own(self, marginal: Marginal, places: Mapping[int, int], *, exactly: bool) -> Marginal | None:
        """A marginal of the whole table as one of this one; None where it is none."""
        found: dict[int, Partition] = {}
        for place, attribute in enumerate(marginal.attributes):
            theirs = marginal.partition(place)
            if attribute not in places:
                return None
            mine = self.cells[places[attribute]]
            if theirs != mine and (exactly or not mine.refines(theirs)):
                return None
            found[places[attribute]] = theirs.over(mine)
        own = Marginal.of(self.sizes, found)
        return own if own.cells == marginal.cells else None

    def records_like(
        self, fits: LocalFits, questions: Sequence[Question], number: int, rng: np.random.Generator, progress: Progress
    ) -> IntArray:
        """The codes of so many records that are near to fits of this table's marginals.

        Args:
            fits: of everything that was measured.
            questions: of which those attributes are looked at together that one of them names together.
            number: how many.
            rng: decides what is rounded which way.
            progress: told from time to time.
        """
        sizes = self.every
        if math.prod(self.sizes) <= MOST_FITTED:
            whole = Cells(Marginal.of(sizes, dict(zip(self.axes, self.cells, strict=True))))
            counts = rounded(fits.best(whole).values(whole).reshape(self.sizes), number, rng, progress=progress)
            return listed(counts, rng)
        named = [question.attributes for question in questions]
        pairs = {(self.axes.index(a), self.axes.index(b)) for axes in named for a in axes for b in axes if a < b}

        def fitted(places: tuple[int, ...]) -> FloatArray:
            cells = Cells(Marginal.of(sizes, {self.axes[place]: self.cells[place] for place in places}))
            return fits.best(cells).values(cells)

        return from_marginals(
            fitted, self.sizes, number, rng, related=sorted(pairs), zeros=self.zeros, progress=progress
        )

    def answers(self, question: Question, counts: FloatArray, residuals: Residuals) -> Answers:
        """The answers of counts of this table's cells."""
        outside = tuple(place for place, axis in enumerate(self.axes) if axis not in question.attributes)
        cells = [cells for axis, cells in zip(self.axes, self.cells, strict=True) if axis in question.attributes]
        return Answers(question, estimated(question, question.of(counts.sum(axis=outside), cells), residuals))

    def records(self, codes: IntArray) -> Records:
        """Records of this table."""
        return Records(self.axes, self.cells, codes)
