"""Ranges over histograms of 1,024 and 4,096 cells: the cells, a hierarchy, and what was optimised for the questions.

Run `python -m benchmarks.research.ranges` (some minutes). Over 4,096 cells nothing is optimised: a service refuses to,
and it takes longer than all else here. Questions are 2,000 random ranges, and over 1,024 cells the sums of the first
cells. Each is answered by least squares from one measurement, and from the same measurement by the nearest counts that
are not negative. Errors are root mean squares over questions and repetitions, with noise from NumPy, beside those that
were expected before anything was drawn. ``scaled`` is the measure of DPBench (Hay, Machanavajjhala, Miklau, Chen, Zhang
2016): the L2 norm of the errors divided by the number of questions and by that of records, here of the fit, in
millionths. The histograms are those of ``../shared/data/dpbench``.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from scipy.sparse import csr_array, issparse

from app.measurements.least_error import hierarchy, least_error, least_error_pure, rounded
from app.measurements.strategies.tables import MOST_ROW_CELLS
from app.privacy.ledger import Budget
from benchmarks.harness import report
from benchmarks.research.regret_data import DATA

ASKED, REPETITIONS, STEPS = 2000, 2, 100
HISTOGRAMS = ("ADULTFRANK", "HEPTH", "INCOME", "SEARCHLOGS")
BRANCHING = 16
#: Pure budgets, and one of Gaussian noise; which noise and questions by the number of cells.
BUDGETS = {"laplace": (0.1, 1.0), "gaussian": (1.0,)}
KINDS = {1024: ("laplace", "gaussian"), 4096: ("laplace",)}
QUESTIONS = {1024: ("random", "first cells"), 4096: ("random",)}
DELTA = "1e-9"


@dataclass(frozen=True, eq=False)
class Asked:
    """Ranges from one cell up to another, which is left out."""

    name: str
    cells: int
    begins: np.ndarray
    ends: np.ndarray

    def of(self, counts: np.ndarray) -> np.ndarray:
        """The sums of counts."""
        sums = np.concatenate([[0.0], np.cumsum(counts)])
        return np.asarray(sums[self.ends] - sums[self.begins])

    def gram(self) -> np.ndarray:
        """How often two cells are in one range together."""
        matrix = np.zeros((len(self.begins), self.cells))
        for row, begin, end in zip(matrix, self.begins, self.ends, strict=True):
            row[begin:end] = 1
        return np.asarray(matrix.T @ matrix)


def questions(cells: int) -> Iterator[Asked]:
    """The same ones on all machines."""
    ends = np.sort(np.random.default_rng(1).integers(0, cells, (ASKED, 2)), axis=1)
    yield Asked("random", cells, ends[:, 0], ends[:, 1] + 1)
    yield Asked("first cells", cells, np.zeros(cells, np.int64), np.arange(1, cells + 1))


class Strategy:
    """Whole weights on all cells, and what is known from their noisy sums.

    Args:
        matrix: the weights.
        kind: the law of the noise.
    """

    def __init__(self, matrix: csr_array | np.ndarray, kind: str) -> None:
        self.matrix = matrix
        sizes = abs(matrix).sum(axis=0) if kind == "laplace" else (matrix * matrix).sum(axis=0)
        most = float(np.asarray(sizes).max())
        #: L1 or L2 norm of what one record moves.
        self.sensitivity = most if kind == "laplace" else math.sqrt(most)
        gram = matrix.T @ matrix
        self._gram = gram if isinstance(gram, np.ndarray) else gram.toarray()
        self._factor = cho_factor(self._gram, check_finite=False)

    def error(self, gram: np.ndarray, variance: float) -> float:
        """The sum of the squared errors to expect of questions of this Gram matrix."""
        return variance * float(np.trace(cho_solve(self._factor, gram, check_finite=False)))

    def least_squares(self, values: np.ndarray) -> np.ndarray:
        """Counts of all cells."""
        return np.asarray(cho_solve(self._factor, self.matrix.T @ values, check_finite=False))

    def not_negative(self, values: np.ndarray, start: np.ndarray) -> np.ndarray:
        """The counts that are not negative and have the nearest sums: by accelerated projected gradients, which begin
        anew where they go uphill."""
        now: np.ndarray = np.maximum(start, 0.0)
        if np.count_nonzero(self._gram) == len(self._gram):
            return now
        right = self.matrix.T @ values
        step = 1 / float(np.abs(self._gram).sum(axis=0).max())
        ahead, momentum = now, 1.0
        for _ in range(STEPS):
            slope = self.matrix.T @ (self.matrix @ ahead) if issparse(self.matrix) else self._gram @ ahead
            slope -= right
            after = np.maximum(ahead - step * slope, 0.0)
            if float(slope @ (after - now)) > 0:
                momentum = 1.0
            faster = (1 + math.sqrt(1 + 4 * momentum * momentum)) / 2
            ahead = after + (momentum - 1) / faster * (after - now)
            now, momentum = after, faster
        return now


def strategies(kind: str, gram: np.ndarray) -> Iterator[tuple[str, Strategy, float]]:
    """With the seconds that it took to find each."""
    cells = len(gram)

    def optimised() -> np.ndarray:
        return rounded(least_error(gram) if kind == "gaussian" else least_error_pure(gram))

    makers: dict[str, Callable[[], csr_array | np.ndarray]] = {
        "cells": lambda: csr_array(np.eye(cells)),
        f"hierarchy of {BRANCHING}": lambda: hierarchy(cells, BRANCHING).astype(float),
    }
    if cells <= MOST_ROW_CELLS:
        makers["optimised"] = optimised
    for name, make in makers.items():
        started = time.perf_counter()
        matrix = make()
        took = time.perf_counter() - started
        yield name, Strategy(matrix, kind), took


def measured(kind: str, asked: Asked, histograms: dict[str, np.ndarray]) -> Iterator[list[Any]]:
    """Rows of the table."""
    gram = asked.gram()
    for name, strategy, took in strategies(kind, gram):
        print(f"{asked.cells} cells, {asked.name}, {kind}, {name}: {took:.0f} s", flush=True)
        for epsilon in BUDGETS[kind]:
            if kind == "laplace":
                scale = strategy.sensitivity / epsilon
                variance = 2 * scale**2
            else:
                budget = Budget.of(Decimal(str(epsilon)), Decimal(DELTA))
                scale = strategy.sensitivity * math.sqrt(float(budget.order) / (2 * float(budget.total)))
                variance = scale**2
            expected = math.sqrt(strategy.error(gram, variance) / len(asked.begins))
            rng = np.random.default_rng(2)
            for data, counts in histograms.items():
                plain, fitted, scaled = [], [], []
                truth, exact = asked.of(counts), strategy.matrix @ counts
                for _ in range(REPETITIONS):
                    noise = rng.laplace(0, scale, len(exact)) if kind == "laplace" else rng.normal(0, scale, len(exact))
                    values = exact + np.rint(noise)
                    found = strategy.least_squares(values)
                    plain.append(np.mean((asked.of(found) - truth) ** 2))
                    error = asked.of(strategy.not_negative(values, found)) - truth
                    fitted.append(np.mean(error**2))
                    scaled.append(float(np.linalg.norm(error)) / len(truth) / float(counts.sum()) * 1e6)
                row: list[Any] = [data, asked.cells, asked.name, kind, epsilon, name, expected]
                row += [math.sqrt(np.mean(plain)), math.sqrt(np.mean(fitted)), float(np.mean(scaled)), took]
                yield row


def main() -> None:
    """Measure all, and print and write the table."""
    if DATA is None:
        raise SystemExit("the histograms are not here")
    histograms = {name: np.load(DATA / "dpbench" / f"{name}.n4096.npy").astype(float) for name in HISTOGRAMS}
    rows: list[list[Any]] = []
    for cells, kinds in KINDS.items():
        merged = {name: counts.reshape(cells, -1).sum(axis=1) for name, counts in histograms.items()}
        chosen = [asked for asked in questions(cells) if asked.name in QUESTIONS[cells]]
        rows += [row for asked in chosen for kind in kinds for row in measured(kind, asked, merged)]
    rows.sort(key=lambda row: (row[1], row[2], row[3], row[4], row[0]))
    columns = ["histogram", "cells", "ranges", "noise", "epsilon", "measured", "expected rms", "rms", "rms of the fit"]
    facts: dict[str, Any] = {"delta": DELTA, "questions": ASKED, "repetitions": REPETITIONS}
    facts["records"] = {name: int(counts.sum()) for name, counts in histograms.items()}
    title = "Ranges over histograms, errors in counts"
    report("ranges", title, [*columns, "scaled", "seconds to find"], rows, **facts)
    groups: dict[tuple[Any, ...], list[list[Any]]] = {}
    for row in rows:
        groups.setdefault(tuple(row[1:6]), []).append(row)
    mean = [
        [*key, own[0][6], *(math.sqrt(np.mean([row[k] ** 2 for row in own])) for k in (7, 8)), own[0][10]]
        for key, own in groups.items()
    ]
    report("ranges_summary", f"{title}, over all histograms", [*columns[1:], "seconds to find"], mean)


if __name__ == "__main__":
    main()
