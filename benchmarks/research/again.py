"""What a question buys that was answered before, in another session whose number of questions nobody declared.

Run `python -m benchmarks.research.again` (a minute). One session of epsilon is asked one question. Another of the same
epsilon, over the same data set, is asked the same or one whose answer follows from as much. In the table is how often
it buys a measurement, and what that brings where it does: the root mean square error and the width of the interval, as
parts of those that were known before. The surveys are those of :mod:`benchmarks.research.statistics`.
"""

from __future__ import annotations

import argparse
import math
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import numpy as np

from app.curator.mechanisms.evidence import Evidence
from app.spaces.queries.registry import parse_query
from app.spaces.queries.statistic import CompiledStatistic
from benchmarks.harness import report
from benchmarks.research.statistics import Ours, Stream, Survey, survey, truth

EPSILONS, SEEDS = (0.2, 1.0), 8


def pairs(table: Survey) -> Iterator[tuple[str, dict[str, Any], dict[str, Any]]]:
    """Of each number of a survey questions, each with one before it."""
    group = next(words["group_by"] for words in table.questions if "group_by" in words)
    for name in dict.fromkeys(words["of"] for words in table.questions):
        median: dict[str, Any] = {"type": "quantile", "of": name, "q": 0.5}
        quartiles, by_group = median | {"q": [0.25, 0.5, 0.75]}, median | {"group_by": group}
        mean = {"type": "mean", "of": name}
        yield "the same median", median, median
        yield "the same quartiles", quartiles, quartiles
        yield "the same medians by group", by_group, by_group
        yield "the median after quartiles", quartiles, median
        yield "the median after those by group", by_group, median
        yield "the same mean", mean, mean
        yield "the mean after those by group", mean | {"group_by": group}, mean
        yield "the mean after the variance", {"type": "variance", "of": name}, mean


def _known(session: Ours, words: dict[str, Any]) -> tuple[np.ndarray, float]:
    """The values of a statistic that are known, and the width of their intervals."""
    query, state = parse_query(words).compiled(session.session.dataset.space), session.session.state
    assert isinstance(query, CompiledStatistic)
    assert isinstance(state, Evidence)
    found = state.statistics.shown(query, 0.95, adaptive=False)
    return query.ordered(found.values), float(np.nanmean(found.highs - found.lows))


def main() -> None:
    """Ask and report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--surveys", nargs="*", default=["fulton", "adult", "incomes", "titanic"])
    parser.add_argument("--seeds", type=int, default=SEEDS)
    given = parser.parse_args()
    asked: dict[tuple[str, float], int] = defaultdict(int)
    brought: dict[tuple[str, float], list[tuple[float, float]]] = defaultdict(list)
    for name in given.surveys:
        table = survey(name)
        for label, before, words in pairs(table):
            true, grid = truth(table, words).values, _grid(table, words["of"])
            for epsilon in EPSILONS:
                for seed in range(given.seeds):
                    first = Ours(table, Stream("first", [before], declared=False), epsilon, seed)
                    first.ask(before)
                    other = Ours(table, Stream("other", [words], declared=False), epsilon, 1000 + seed, first.made)
                    made, (known, width) = len(other.made), _known(other, words)
                    values, lows, highs = other.ask(words)
                    asked[label, epsilon] += 1
                    if len(other.made) > made:
                        # Known to a number they are off by what rounding adds.
                        squares = (float(np.nanmean(np.square(found - true))) for found in (values, known))
                        errors = [math.sqrt(square + grid**2 / 12) for square in squares]
                        widths = float(np.nanmean(highs - lows)) + grid, width + grid
                        brought[label, epsilon].append((errors[0] / errors[1], widths[0] / widths[1]))
    rows = []
    for key, count in asked.items():
        found = brought[key]
        means = [math.exp(float(np.mean(np.log([pair[k] for pair in found])))) if found else None for k in (0, 1)]
        rows.append([*key, len(found) / count, *means])
    columns = ["question", "epsilon", "bought", "error", "interval"]
    report("again", "Questions that were answered before", columns, rows, seeds=given.seeds)


def _grid(table: Survey, name: str) -> float:
    """The step from one number to the next."""
    return float(next(a for a in table.attributes if a["name"] == name)["grid"])


if __name__ == "__main__":
    main()
