"""Quantiles that are drawn, with counts of ranges around what was drawn, beside quantiles that are read from counts.

Run `python -m benchmarks.research.drawn_quantiles` (some ten minutes). The first question of a session of the service's
own mechanism is a median, what a tenth of the records lies above, or all three quartiles, of all records or by group.
It is the only one, or one of ten or sixty. It is answered as the service does it, with draws wherever they can be made,
for several parts of the price, and without.

Errors are root mean squares as parts of the best that a user gets who asks each question by himself
(:mod:`benchmarks.research.statistics`), with what rounding to a place adds to both; half widths of 95% intervals are
parts of those without draws, and it is told how often they hold the truth. *Service* says where the service draws.
"""

from __future__ import annotations

import argparse
import itertools
import math
from collections.abc import Iterator
from typing import Any
from unittest import mock

import numpy as np

from app.measurements.strategies.drawn import DrawnQuantiles
from app.policies import quantiles
from app.policies.quantiles import Quantile
from app.spaces.queries.registry import parse_query
from benchmarks.harness import report
from benchmarks.research.statistics import EPSILONS, WAYS, Alone, Ours, Stream, Survey, Truth, survey, truth

SEEDS = 12
#: Of what is paid, the part that draws; none reads medians from counts.
PARTS = (0.0, 0.5, 0.6, 0.7, 0.8)
#: One of so many questions.
QUESTIONS = (1, 10, 60)
QUARTILES = [0.25, 0.5, 0.75]
#: What is asked of all records, by a group, and by another.
LEVELS: list[list[tuple[str, float | list[float]]]] = [
    [("", 0.5), (", upper tenth", 0.9), (", quartiles", QUARTILES)],
    [("", 0.5), (", quartiles", QUARTILES)],
    [("", 0.5)],
]


def played(table: Survey, stream: Stream, epsilon: float, seeds: int, part: float) -> Iterator[np.ndarray]:
    """What so many sessions make of the first question: values, and the ends of intervals."""
    with (
        mock.patch.multiple(quantiles, DRAWN_PART=part, WORTH_DRAWING=1e-9, WORTH_AT_LAST=1e-9, TAILS=0.0),
        mock.patch.object(Quantile, "_draw", _never if not part else _DRAW),
    ):
        for seed in range(seeds):
            yield np.stack(Ours(table, stream, epsilon, seed).ask(stream.questions[0]))


_DRAW = Quantile._draw


def _never(*_asked: Any) -> None:
    """Nothing is drawn."""


def drawn_by_service(table: Survey, stream: Stream, epsilon: float) -> bool:
    """Whether the service draws the first question."""
    ours = Ours(table, stream, epsilon, 0)
    query = parse_query(stream.questions[0]).compiled(ours.session.dataset.space)
    due = ours.session.consider(query)
    return hasattr(due, "purchase") and isinstance(due.purchase.strategy, DrawnQuantiles)


def judged(found: Iterator[np.ndarray], true: Truth, step: float) -> tuple[float, float, float] | None:
    """Root mean square errors, half widths on average, and how often an interval holds: of groups with records that are
    not told to be empty; None where all are."""
    values, lows, highs = np.stack(list(found), axis=1)
    there = ~np.isnan(values) & ~np.isnan(true.values)
    if not there.any():
        return None
    squares = np.square(values - true.values)[there].mean() + step**2 / 12
    held = (lows <= true.values) & (true.values <= highs)
    return math.sqrt(float(squares)), float((highs - lows + step)[there].mean() / 2), float(held[there].mean())


def compared(table: Survey, stream: Stream, epsilon: float, seeds: int) -> Iterator[list[Any]]:
    """A row for each part that draws: the part, errors beside the best user's, widths beside those without, and how
    often intervals hold."""
    words = stream.questions[0]
    step = next(a["grid"] for a in table.attributes if a["name"] == words["of"])
    true, widest = truth(table, words), 0.0
    there = ~np.isnan(true.values)
    ways = (Alone(table, stream, epsilon, k, way=way).ask(words, true) for k, way in enumerate(WAYS))
    best = min(math.sqrt(np.square(each - true.values)[:, there].mean() + step**2 / 12) for each in ways)
    for part in PARTS:
        found = judged(played(table, stream, epsilon, seeds, part), true, step)
        if found is None:
            return
        error, width, held = found
        widest = widest or width
        yield [part, error / best, width / widest, held]


def tasks(name: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """What is asked of the numbers of a survey, of all records and by two groups: a label, and the question."""
    asked = survey(name).questions
    groups = [*dict.fromkeys(tuple(q["group_by"]) for q in asked if "group_by" in q)]
    for number in dict.fromkeys(q["of"] for q in asked):
        for group, levels in zip((None, groups[0], groups[2]), LEVELS, strict=True):
            by = "" if group is None else f" by {'+'.join(group)}"
            for label, level in levels:
                words = {"type": "quantile", "of": number, "q": level}
                yield f"{number}{by}{label}", words | ({"group_by": list(group)} if group else {})


def summed(rows: list[list[Any]]) -> Iterator[list[Any]]:
    """Geometric means over all tasks that the service draws, and over the others, of one level and of several, for each
    part that draws."""
    for service, several, part in itertools.product(("yes", "no"), ("one", "three"), PARTS):
        own = [row for row in rows if row[4] == service and row[1].endswith("quartiles") == (several == "three")]
        own = [row for row in own if row[5] == part]
        if own:
            error, width = (math.exp(float(np.mean(np.log([row[k] for row in own])))) for k in (6, 7))
            yield [service, several, len(own), part, error, width, float(np.mean([row[8] for row in own]))]


def main() -> None:
    """Draw, count and report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--surveys", nargs="*", default=["fulton", "adult", "incomes", "titanic"])
    parser.add_argument("--seeds", type=int, default=SEEDS)
    asked = parser.parse_args()
    rows: list[list[Any]] = []
    for name in asked.surveys:
        table = survey(name)
        for label, words in tasks(name):
            for epsilon in EPSILONS:
                for questions in QUESTIONS:
                    stream = Stream("medians", [words] * questions)
                    draws = drawn_by_service(table, stream, epsilon)
                    for row in compared(table, stream, epsilon, asked.seeds):
                        rows.append([name, label, epsilon, questions, "yes" if draws else "no", *row])
    measured = ["error", "interval", "held"]
    columns = ["survey", "of", "epsilon", "questions", "service", "drawn", *measured]
    summary = ["service", "levels", "tasks", "drawn", *measured]
    report("drawn_quantiles_summary", "Quantiles that are drawn", summary, list(summed(rows)), seeds=asked.seeds)
    report("drawn_quantiles", "Quantiles that are drawn, by task", columns, rows, seeds=asked.seeds)


if __name__ == "__main__":
    main()
