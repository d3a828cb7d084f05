"""Medians drawn by the exponential mechanism, with counts beside for their intervals, beside medians read from counts.

Run `python -m benchmarks.research.drawn_quantiles` (some ten minutes). The first question of a session of the service's
own mechanism is a median, of all records or by group; it is the only one, or the first of ten. What the session would
pay is divided: a part draws each median by the exponential mechanism, and the rest buys counts of ranges that are cut
around what was drawn, from which the service's own code reads an interval and a value. Beside it the service as it is,
which buys counts with all of it.

Errors are root mean squares as parts of the best that a user gets who asks each question by himself
(:mod:`benchmarks.research.statistics`): those of the values that were drawn and of those read from counts; half widths
of 95% intervals are parts of the service's, and it is told how often they hold the truth.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator
from typing import Any
from unittest import mock

import numpy as np

from app.curator.mechanisms.evidence import Evidence
from app.policies.quantiles import Place, Quantile
from app.policies.table import Wanted
from benchmarks.harness import report
from benchmarks.research.statistics import EPSILONS, WAYS, Alone, Ours, Stream, Survey, survey, truth

SEEDS = 10
#: Of what is paid, the part that draws.
PARTS = (0.2, 0.35, 0.5, 0.65, 0.8, 0.95)
#: Of how many questions it is the first.
QUESTIONS = (1, 10)
#: Records of the smallest group, times the epsilon of a question, from which groups are large.
LARGE = 100.0
#: Deviations of the rank of what was drawn within which ranges are fine.
_NEAR = 4.0


class Drawn:
    """Medians of the groups of a question, drawn with a part of what it is paid."""

    def __init__(self, table: Survey, words: dict[str, Any], order: float, part: float, seed: int) -> None:
        self._table, self._words, self._order, self._part = table, words, order, part
        self._rng = np.random.default_rng(seed)
        attribute = next(a for a in table.attributes if a["name"] == words["of"])
        self._grid = np.arange(attribute["lower"], attribute["upper"] + 1, attribute["grid"], dtype=np.float64)
        self.values = np.zeros(0)

    def decide(
        self, kind: Quantile, left: float, within: float | None, confidence: float, slack: float
    ) -> Wanted | None:
        """In place of :meth:`.Quantile.decide`: draws, and decides on counts around what was drawn."""
        share = kind.policy.share(kind.asked.question, left)
        paid = self._part * share
        # The score moves by one half at most, one way or the other.
        rate = paid if kind.policy.pure else math.sqrt(8 * paid / self._order)
        members = truth(self._table, self._words).members
        self.values = np.array([self._one(own, rate) for own in members])
        noise, one = kind._noise(share - paid)
        if noise is None:
            return None
        base = kind._base()
        below = np.cumsum(base)
        places = []
        for value, own in zip(self.values, members, strict=True):
            place = int(np.searchsorted(self._grid, value))
            hidden = math.sqrt(noise.variance) / one / max(len(own), 1)
            spread = hidden + _NEAR * math.sqrt(2) / rate / max(len(own), 1)
            places.append(Place(0.5, float(below[place]), spread, hidden))
        return kind._wanted(kind._marginal(kind._cut(places, below, 32)), noise)

    def _one(self, own: np.ndarray, rate: float) -> float:
        ordered = np.sort(own)
        below, before = (np.searchsorted(ordered, self._grid, side=side) for side in ("right", "left"))
        score = -np.maximum(np.maximum(before - len(own) / 2, len(own) / 2 - below), 0.0)
        chances = np.exp(score * rate - (score * rate).max())
        return float(self._rng.choice(self._grid, p=chances / chances.sum()))


#: What was drawn, what was read from counts, and the ends of its intervals: a number a group.
Found = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]


def played(table: Survey, stream: Stream, epsilon: float, seeds: int, part: float | None) -> Iterator[Found]:
    """What so many sessions make of the first question; where nothing is drawn the service's values are told twice."""
    words = stream.questions[0]
    for seed in range(seeds):
        ours = Ours(table, stream, epsilon, seed)
        if part is None:
            values, lows, highs = ours.ask(words)
            yield values, values, lows, highs
            continue
        state = ours.session.state
        assert isinstance(state, Evidence)
        drawn = Drawn(table, words, state.policy.funds.order, part, seed)

        def decide(kind: Quantile, *asked: Any, drawn: Drawn = drawn) -> Wanted | None:
            return drawn.decide(kind, *asked)

        with mock.patch.object(Quantile, "decide", decide):
            read, lows, highs = ours.ask(words)
        # Nothing is bought where the opening measured the whole table.
        yield drawn.values if len(drawn.values) else read, read, lows, highs


def judged(found: Iterator[Found], exact: np.ndarray, there: np.ndarray) -> tuple[float, float, float, float]:
    """Root mean square errors of what was drawn and of what was read, half widths on average, and how often an interval
    holds: of groups with records that are not told to be empty."""
    drawn, read, lows, highs = (np.array(each)[:, there] for each in zip(*found, strict=True))
    told = ~np.isnan(read)
    errors = (math.sqrt(float(np.mean(np.square(each - exact[there])[told]))) for each in (drawn, read))
    held = (lows <= exact[there]) & (exact[there] <= highs)
    return *errors, float(((highs - lows) / 2)[told].mean()), float(held[told].mean())  # type: ignore[return-value]


def compared(name: str, group: list[str] | None, epsilon: float, questions: int, seeds: int) -> Iterator[list[Any]]:
    """A row for the service, and one for each part that draws."""
    table = survey(name)
    number = table.questions[0]["of"]
    words: dict[str, Any] = {"type": "quantile", "of": number, "q": 0.5} | ({"group_by": group} if group else {})
    stream = Stream("medians", [words] * questions)
    true = truth(table, words)
    there = np.array([len(own) > 0 for own in true.members])
    ways = (Alone(table, stream, epsilon, k, way=way).ask(words, true) for k, way in enumerate(WAYS))
    best = min(math.sqrt(float(np.mean(np.square(values - true.values)[:, there]))) for values in ways)
    label, widest = f"{number} by {group[0]}" if group else number, 0.0
    known = min(len(own) for own in true.members if len(own)) * epsilon / questions
    for part in (None, *PARTS):
        drawn, read, width, held = judged(played(table, stream, epsilon, seeds, part), true.values, there)
        widest = width if part is None else widest
        own = [None if part is None or not best else drawn / best, read / best if best else None]
        yield [name, label, epsilon, questions, known, part or 0.0, *own, width / widest if widest else None, held]


def summed(rows: list[list[Any]]) -> Iterator[list[Any]]:
    """Geometric means over all tasks of large groups, and over those of small ones, for each part that draws."""
    for large in (True, False):
        for part in (0.0, *PARTS):
            own = [row for row in rows if (row[4] >= LARGE) is large and row[5] == part]
            told = [[row[column] for row in own if row[column]] for column in (6, 7, 8)]
            means = [math.exp(float(np.mean(np.log(each)))) if each else None for each in told]
            yield ["large" if large else "small", part, *means, float(np.mean([row[9] for row in own]))]


def main() -> None:
    """Draw, count and report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--surveys", nargs="*", default=["fulton", "adult", "incomes", "titanic"])
    parser.add_argument("--seeds", type=int, default=SEEDS)
    asked = parser.parse_args()
    rows: list[list[Any]] = []
    for name in asked.surveys:
        groups = next(q["group_by"] for q in survey(name).questions if "group_by" in q)
        for group in (None, groups):
            for epsilon in EPSILONS:
                for questions in QUESTIONS:
                    rows += compared(name, group, epsilon, questions, asked.seeds)
    measured = ["error, drawn", "error, read", "interval", "held"]
    columns = ["survey", "median of", "epsilon", "questions", "records times epsilon", "drawn", *measured]
    summary = ["groups", "drawn", *measured]
    report("drawn_quantiles_summary", "Medians that are drawn, by size", summary, list(summed(rows)), seeds=asked.seeds)
    report("drawn_quantiles", "Medians that are drawn, and their intervals", columns, rows, seeds=asked.seeds)


if __name__ == "__main__":
    main()
