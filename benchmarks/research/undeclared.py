"""How a budget is shared among questions whose number nobody declared: series of shares compared.

Run `python -m benchmarks.research.undeclared` (half an hour; fewer epsilons take less). The service's own sessions,
without a server and with noise from NumPy, under several series: what the opening leaves is shared with so many
purchases to come. Errors are root mean squares as ratios, in geometric means: of three and of fifteen statistics to
those of the best that a user does who does not know their number either (:mod:`benchmarks.research.statistics`), of
long streams of counts to those of Gaussian noise whose user knows it (:mod:`benchmarks.research.regret`).
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from unittest.mock import patch

import numpy as np

from app.policies.table import Policy
from benchmarks.harness import report
from benchmarks.research import regret_methods
from benchmarks.research.regret_data import STREAMS, world
from benchmarks.research.statistics import EPSILONS, played, streams, survey

#: How many purchases to come what is left is shared with, after so many purchases and questions, of the last of which
#: so large a part was paid for.
Series = Callable[[int, int, float], float]
SHORT = ("3 questions, undeclared", "15 questions, undeclared")
LONG = ("tabulation", "300 predicates", "drill-down")


SERIES: dict[str, Series] = {
    "asked + 99": lambda purchases, asked, paid: (asked + 99) * paid,
    "n^-1.25": lambda purchases, asked, paid: 4 * purchases + 3,
    "purchases + 2": lambda purchases, asked, paid: purchases + 2,
    "purchases + 4": lambda purchases, asked, paid: purchases + 4,
    "purchases + 9": lambda purchases, asked, paid: purchases + 9,
    "1.5, then purchases + 3": lambda purchases, asked, paid: purchases + 3 if purchases else 1.5,
}


def _mean(ratios: list[float]) -> float:
    return math.exp(float(np.mean(np.log(ratios))))


def row(name: str, tables: tuple[str, ...], table: str, epsilons: list[float], seeds: int) -> list[object]:
    """The ratios of one series."""
    series = SERIES[name]

    def rest(policy: Policy) -> float:
        paid = max((5 + sum(policy._paid)) / (5 + len(policy._paid)), 0.15)
        return series(policy._purchases, policy._asked, paid)

    found: list[object] = [name]
    with patch.object(Policy, "_rest", rest):
        for stream in SHORT:
            ratios = [
                cell["ratio"]
                for each in tables
                for asked in streams(survey(each))
                if asked.name == stream
                for epsilon in epsilons
                for cell in played(each, asked, epsilon, 4 * seeds)
                if cell["ratio"]
            ]
            found += [_mean(ratios), max(ratios)]
        for stream in LONG:
            ratios = []
            for epsilon in epsilons:
                own, other = [], []
                for seed in range(seeds):
                    questions = STREAMS[stream](world(table), seed)
                    own.append(regret_methods.policy(world(table), questions, epsilon, seed, None).rmse)
                    other.append(regret_methods.gaussian(world(table), questions, epsilon, seed).rmse)
                ratios.append(float(np.linalg.norm(own) / np.linalg.norm(other)))
            found.append(_mean(ratios))
    return found


def main() -> None:
    """Compare and report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--epsilons", nargs="*", type=float, default=list(EPSILONS))
    given = parser.parse_args()
    # Each series is patched into a process of its own.
    with ProcessPoolExecutor(2, max_tasks_per_child=1) as pool:
        made = [pool.submit(row, name, ("fulton", "adult"), "adult8", given.epsilons, given.seeds) for name in SERIES]
        rows = [found.result() for found in made]
    columns = ["shared with", "3 statistics", "largest", "15 statistics", "largest of 15", *LONG]
    report("undeclared", "Questions of a number that nobody declared", columns, rows, seeds=given.seeds)


if __name__ == "__main__":
    main()
