"""In how many ranges a first quantile is bought, where nothing is known of where it lies: errors and intervals.

Run `python -m benchmarks.research.first_quantiles` (some three minutes). Sessions of one question on incomes that are
made up (:mod:`benchmarks.research.statistics`), which is a quantile, in at most so many ranges. None is drawn
(:mod:`benchmarks.research.drawn_quantiles`). 32 ranges are those of later quantiles, where it is known about where to
look. Root mean square errors, and means of half the width of nominal 95% intervals, as parts of those with 32.
"""

from __future__ import annotations

import argparse
import math
from typing import Any
from unittest import mock

import numpy as np

from app.policies import quantiles
from benchmarks.harness import report
from benchmarks.research.statistics import EPSILONS, Ours, Stream, survey, truth

RANGES, SEEDS = (32, 48, 64, 96, 128), 10
#: The incomes' bounds are ordinary; those of what is spent are thousands of times too wide.
ASKED: dict[str, dict[str, Any]] = {
    "median": {"type": "quantile", "of": "income", "q": 0.5},
    "quartiles": {"type": "quantile", "of": "income", "q": [0.25, 0.5, 0.75]},
    "median, wide bounds": {"type": "quantile", "of": "spent", "q": 0.5},
    "deciles, wide bounds": {"type": "quantile", "of": "spent", "q": [0.1, 0.9]},
}


def measured(words: dict[str, Any], epsilon: float, ranges: int, seeds: int) -> tuple[float, float]:
    """The root mean square error of the answer, and half the width of its interval on average."""
    table, stream = survey("incomes"), Stream("alone", [words])
    exact, squares, widths = truth(table, words).values, [], []
    with mock.patch.multiple(quantiles, _MOST_ANYWHERE=ranges, WORTH_DRAWING=math.inf, WORTH_AT_LAST=math.inf):
        for seed in range(seeds):
            values, lows, highs = Ours(table, stream, epsilon, seed).ask(words)
            told = ~np.isnan(values) & ~np.isnan(exact)
            squares += np.square(values - exact)[told].tolist()
            widths += ((highs - lows) / 2)[told].tolist()
    return float(np.sqrt(np.mean(squares))), float(np.mean(widths))


def main() -> None:
    """Ask and report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=SEEDS)
    seeds, rows = parser.parse_args().seeds, []
    for name, words in ASKED.items():
        for epsilon in EPSILONS:
            error, width = measured(words, epsilon, RANGES[0], seeds)
            rows.append([name, epsilon, RANGES[0], 1.0, 1.0])
            for ranges in RANGES[1:]:
                own, wide = measured(words, epsilon, ranges, seeds)
                rows.append([name, epsilon, ranges, own / error if error else None, wide / width])
    columns = ["question", "epsilon", "ranges", "error", "interval"]
    report("first_quantiles", "First quantiles by the number of ranges", columns, rows, seeds=seeds)


if __name__ == "__main__":
    main()
