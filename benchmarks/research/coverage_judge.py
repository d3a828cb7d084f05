"""Judges how often intervals hold: by exact tests, corrected for how many are made, that count sessions.

Answers of one session share noise. So a session counts as one, with the part of its answers that hold: for averages of
such parts the binomial law bounds how likely so few are, times e (Bentkus 2004, *On Hoeffding's inequalities*); where a
session has a single answer it is the binomial law itself. Cells of different chances may be put together: the binomial
law of their average bounds theirs (Hoeffding 1956).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.stats import binom

from app.spaces.tensor import FloatArray

#: With this probability some cell is flagged though all hold what they say.
MISTAKEN = 0.01
#: Intervals of the usual confidence that hold more often than this say why.
USUAL, TOO_OFTEN = 0.95, 0.995
#: Data whose true answers lie at a bound of what is possible: intervals are cut there, and can be missed on one side.
AT_BOUND = ("empty", "bound")
#: What numbers are off by where they are none.
_SLACK = 1e-6


@dataclass
class Cell:
    """How often intervals of one kind held.

    Attributes:
        kind: of question.
        mode: how the session paid.
        interval: ``unbiased`` or ``model``, or ``bound`` of a contract.
        data: what it was asked of.
        epsilon: of the session.
        confidence: that is stated.
        sessions: how many had such an answer.
        answers: how many there were.
        held: of the sessions, summed parts of their answers whose interval held.
        narrower: the same of the next narrower intervals that there are: of whole-number noise a unit on both sides, of
            quantiles a range.
        single: the same of answers whose interval is a single value, which holds.
        silent: the same of answers that have no value where there is one: no interval can be wrong.
        width: of the sessions, the summed mean width of intervals.
        squares: the summed mean squared distance of what the intervals are around to the truth.
        ratios, rated: where cells were put together, of those that erred the summed :attr:`wide` of their sessions, and
            how many these are.
    """

    kind: str
    mode: str
    interval: str
    data: str
    epsilon: float
    confidence: float
    sessions: int = 0
    answers: int = 0
    held: float = 0.0
    narrower: float = 0.0
    single: float = 0.0
    silent: float = 0.0
    width: float = 0.0
    squares: float = 0.0
    ratios: float = 0.0
    rated: int = 0

    def take(
        self,
        truth: FloatArray,
        lows: FloatArray,
        highs: FloatArray,
        centres: FloatArray,
        narrow: tuple[FloatArray, FloatArray] | None = None,
    ) -> None:
        """One session's answers: NaN ends where there is no value. ``narrow`` are the ends of the next narrower
        intervals that there could be, where they are not of any width.
        """
        slack = _SLACK * np.maximum(1.0, np.abs(truth))
        silent = np.isnan(lows)
        inside = silent | ((lows <= truth + slack) & (truth - slack <= highs))
        tight = inside if narrow is None else (narrow[0] <= truth + slack) & (truth - slack <= narrow[1])
        self.sessions += 1
        self.answers += len(truth)
        self.held += float(inside.mean())
        self.narrower += float((tight & ~silent).mean())
        self.single += float(((highs - lows <= 2 * slack) & inside & ~silent).mean())
        self.silent += float(silent.mean())
        told = ~silent & ~np.isnan(truth)
        if told.any():
            self.width += float((highs - lows)[told].mean())
            # What rounding leaves is no error to measure a width by.
            errors = np.where(np.abs(centres - truth) <= slack, 0.0, centres - truth)
            self.squares += float(np.square(errors)[told].mean())

    def add(self, other: Cell) -> None:
        """Take in another cell's sessions."""
        for name in ("sessions", "answers", "held", "narrower", "single", "silent"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        if other.squares:
            self.ratios += other.sessions * other.wide
            self.rated += other.sessions

    @property
    def covered(self) -> float:
        """How often intervals held."""
        return self.held / self.sessions

    @property
    def wide(self) -> float:
        """The mean width, in root mean square errors of what the intervals are around; NaN where nothing errs."""
        if self.rated:
            return self.ratios / self.rated
        return self.width / math.sqrt(self.squares * self.sessions) if self.squares else math.nan

    @property
    def chance(self) -> float:
        """At most how likely so few hold where intervals hold as often as is stated."""
        found = float(binom.cdf(math.ceil(self.held - 1e-9), self.sessions, self.confidence))
        return min(1.0, found * (1.0 if self.answers == self.sessions else math.e))

    @property
    def chance_of_more(self) -> float:
        """At most how likely so many hold where intervals hold as often as is stated."""
        found = float(binom.sf(math.floor(self.held + 1e-9) - 1, self.sessions, self.confidence))
        return min(1.0, found * (1.0 if self.answers == self.sessions else math.e))

    @property
    def reason(self) -> str | None:
        """Why intervals hold more often than is stated; None where nothing says so."""
        if self.interval == "model":
            return "a model's"
        if self.interval == "bound":
            return "of all answers"
        if self.kind.startswith("chosen"):
            return "chosen"
        rest = self.sessions - self.silent
        if rest < 1 or (self.held - self.silent) / rest <= TOO_OFTEN:
            return "no value"
        rest -= self.single
        if rest < 1 or (self.held - self.silent - self.single) / rest <= TOO_OFTEN:
            return "one value"
        if self.narrower / self.sessions < self.confidence:
            return "ranges" if self.kind.startswith("quantile") else "whole numbers"
        return "all that may be" if self.wide < 1 else None


#: What is put together, from the finest: every cell, every data set and every epsilon, and every mode.
LEVELS: Sequence[Callable[[Cell], tuple[Any, ...]]] = (
    lambda c: (c.kind, c.mode, c.interval, c.confidence, c.data, c.epsilon),
    lambda c: (c.kind, c.mode, c.interval, c.confidence, c.data, None),
    lambda c: (c.kind, c.mode, c.interval, c.confidence, None, c.epsilon),
    lambda c: (c.kind, c.mode, c.interval, c.confidence, None, None),
)


def together(cells: Iterable[Cell], level: Callable[[Cell], tuple[Any, ...]]) -> list[Cell]:
    """Cells put together by what they have in common."""
    found: dict[tuple[Any, ...], Cell] = {}
    for cell in cells:
        kind, mode, interval, confidence, data, epsilon = name = level(cell)
        made = found.setdefault(name, Cell(kind, mode, interval, data or "all", epsilon or math.nan, confidence))
        made.add(cell)
    return list(found.values())


@dataclass(frozen=True)
class Verdict:
    """What is wrong with a cell, or with several put together."""

    cell: Cell
    fault: str


def judged(cells: Sequence[Cell]) -> list[Verdict]:
    """All that hold less often than they say by more than chance, and that hold too often without a reason; of data
    that lie at a bound it is not asked why.
    """
    found = []
    for level in LEVELS:
        several = [cell for cell in together(cells, level) if cell.interval != "model"]
        allowed = MISTAKEN / (2 * len(LEVELS) * max(1, len(several)))
        found += [Verdict(cell, "too seldom") for cell in several if cell.chance < allowed]
        inner = together([cell for cell in cells if cell.data not in AT_BOUND], level)
        found += [
            Verdict(cell, "too often")
            for cell in inner
            if cell.confidence == USUAL
            and cell.covered > TOO_OFTEN
            and cell.chance_of_more < allowed
            and cell.reason is None
        ]
    return found
