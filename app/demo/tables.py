"""The first acts: a table against the truth, three analysts who share what was paid for, and two alternatives."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from app.demo.baseline import gaussian_sigma
from app.demo.data import Flags
from app.demo.survey import Floats, Survey, bins_of, tables, years
from curator_client import Cell, Curator, Table

#: What the first act asks: a mean in each cell of a table.
OF, BY = "faminc", ("educ", "inlf")
#: What the second of these says of the wife.
WORKS = ("at home", "works")
#: Counts below it are what statistical offices often suppress.
SUPPRESSED_BELOW = 10
#: So many tables at the beginning and at the end are told by themselves.
ENDS = 5
ANALYSTS = 3


@dataclass(frozen=True)
class Means:
    """The first act's answer, with the truth in the shape of its values."""

    answer: Table
    truth: Floats = field(repr=False)
    epsilon: float

    @property
    def held(self) -> int:
        """How many intervals hold the truth."""
        return int(_held(self.answer, self.truth).sum())

    def rows(self) -> list[tuple[str, str, Cell, float]]:
        """For each cell its schooling, the wife's work, its mean and the truth."""
        truths = self.truth.reshape(-1).tolist()
        return [
            (years(str(schooling)), WORKS[bool(works)], value, truth)
            for ((schooling, works), value), truth in zip(self.answer, truths, strict=True)
        ]


@dataclass(frozen=True)
class Tabulated:
    """What came of the tables: an answer and a truth a table, in the order asked."""

    answers: Sequence[Table]
    truths: Sequence[Floats] = field(repr=False)
    spent: float

    @property
    def counts(self) -> int:
        """The number of cells of all tables."""
        return sum(truth.size for truth in self.truths)

    @property
    def free(self) -> int:
        """How many tables cost nothing, as they follow from what was paid for."""
        return sum(answer.charged == 0 for answer in self.answers)

    @property
    def held(self) -> float:
        """The part of all intervals that hold the truth."""
        pairs = zip(self.answers, self.truths, strict=True)
        return float(np.concatenate([_held(answer, truth) for answer, truth in pairs]).mean())

    def error(self, chosen: slice = slice(None)) -> float:
        """The root mean square error of the cells of some tables."""
        pairs = zip(self.answers[chosen], self.truths[chosen], strict=True)
        errors = np.concatenate([_values(answer) - truth.reshape(-1) for answer, truth in pairs])
        return float(np.sqrt(np.mean(errors**2)))


@dataclass(frozen=True)
class Rival:
    """Another way to publish the tables: its root mean square errors, cells that are left out, and what it promises."""

    name: str
    error: float
    first: float
    last: float
    lost: int
    promise: str


def ask_means(curator: Curator, survey: Survey, epsilon: float) -> Means:
    """Ask for the first act's table, in a session of its own."""
    with curator.session("couples", epsilon=epsilon, max_queries=1) as session:
        answer = session.mean(OF, by=BY, bins=bins_of(BY))
    return Means(answer, survey.means(OF, BY), epsilon)


def ask_tables(
    analysts: Sequence[Curator],
    survey: Survey,
    epsilon: float,
    transcript: Path,
    progress: Callable[[int, int, float], None],
) -> Tabulated:
    """Have analysts ask one after the other for their part of all tables, each in a session with a part of epsilon.

    Who comes later is answered from what others paid for. ``progress`` is told after each how many tables were asked,
    how many of them were free, and what was spent; the last session's ``transcript`` is written.
    """
    asked = tables()
    each = -(-len(asked) // len(analysts))
    answers, spent = [], 0.0
    for turn, analyst in enumerate(analysts):
        mine = asked[turn * each : (turn + 1) * each]
        with analyst.session("couples", epsilon=epsilon / len(analysts), max_queries=len(mine)) as session:
            answers += [session.group_by(*names, bins=bins_of(names)) for names in mine]
            spent += session.state().spent_epsilon or 0.0
            session.transcript(transcript)
            progress(len(answers), sum(answer.charged == 0 for answer in answers), spent)
    return Tabulated(answers, [survey.counts(names) for names in asked], spent)


def rivals(told: Tabulated, epsilon: float, delta: float) -> tuple[Rival, Rival, int]:
    """Independent noise for as many tables at this epsilon, and tables without small cells; and of the cells that the
    latter leaves out how many follow by subtraction.
    """
    sigma = gaussian_sigma(epsilon, delta, len(told.truths))
    hidden = [(truth > 0) & (truth < SUPPRESSED_BELOW) for truth in told.truths]
    lost = int(sum(cells.sum() for cells in hidden))
    noise = Rival("independent Gaussian noise, best calibration", sigma, sigma, sigma, 0, "yes, proved")
    gaps = Rival(
        f"cells below {SUPPRESSED_BELOW} suppressed, others exact", 0.0, 0.0, 0.0, lost, "no: differences tell"
    )
    return noise, gaps, lost - _left_hidden(hidden, tables())


def _left_hidden(hidden: Sequence[Flags], asked: Sequence[tuple[str, ...]]) -> int:
    """How many suppressed cells nobody can compute by subtraction.

    A row of a table, along one attribute, adds up to a cell of a two-way table. That is known where any table shows it
    whole; a row of which all but one are known then tells the last.
    """
    missing = [cells.copy() for cells in hidden]
    while True:
        before = sum(int(cells.sum()) for cells in missing)
        known: dict[tuple[str, ...], Flags] = {}
        for names, cells in zip(asked, missing, strict=True):
            for axis in range(3):
                pair = names[:axis] + names[axis + 1 :]
                shown: Flags = np.asarray(~cells.any(axis=axis))
                known[pair] = known[pair] | shown if pair in known else shown
        for names, cells in zip(asked, missing, strict=True):
            for axis in range(3):
                pair = names[:axis] + names[axis + 1 :]
                told = known[pair] & (cells.sum(axis=axis) == 1)
                cells &= ~np.expand_dims(told, axis)
        if sum(int(cells.sum()) for cells in missing) == before:
            return before


def _values(answer: Table) -> Floats:
    return np.array([float(value) for _, value in answer])


def _held(answer: Table, truth: Floats) -> Flags:
    """Whether each interval holds the truth, cell by cell."""
    low, high = np.array([(value.low, value.high) for _, value in answer]).T
    flat = truth.reshape(-1)
    return np.asarray((low <= flat) & (flat <= high))
