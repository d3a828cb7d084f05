"""Counts by a hierarchy: how the price is divided among levels, on trees of several shapes.

Run `python -m benchmarks.research.hierarchies` (a minute). For each tree all nodes are measured at one price: the
leaves alone, all levels alike, levels by powers of their numbers of nodes (a multiplier as n^p), and by the best
division that a search finds. Errors are exact (no noise is drawn): root mean squares over all nodes after least squares
on the tree, as multiples of those of the best division. ``offered`` is the best of those that a session looks at: the
leaves, and what `app/measurements/strategies/hierarchy.py` offers. With Gaussian noise a price is a sum of squared
multipliers, with Laplace noise and pure epsilon it is a sum of multipliers.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from scipy.optimize import minimize

from app.estimation.tables.residuals import Residuals
from app.measurements.record import serving
from app.measurements.strategies.tables import Part, TableStrategy
from app.spaces.partition import Marginal, Partition
from app.spaces.questions import Nested
from app.spaces.tensor import IntArray
from benchmarks.harness import report

POWERS = (1 / 4, 1 / 3, 1 / 2, 1.0)
#: Multipliers are whole: so fine that it makes no difference.
_FINE = 1 << 12
_SEARCH = {"maxiter": 250, "fatol": 1e-5, "xatol": 1e-3}


def even(*branching: int) -> list[IntArray]:
    """Every node of a level has equally many parts."""
    leaves = math.prod(branching)
    return [np.arange(leaves) * math.prod(branching[: k + 1]) // leaves for k in range(len(branching))]


def uneven(sizes: Sequence[int]) -> list[IntArray]:
    """Groups of these sizes."""
    return [np.repeat(np.arange(len(sizes)), sizes), np.arange(sum(sizes))]


TREES = {
    "2 of 2": even(2, 2),
    "4 of 100": even(4, 100),
    "50 of 60": even(50, 60),
    "100 of 4": even(100, 4),
    "2, 2 and 200": uneven([2, 2, 200]),
    "1 to 40": uneven(range(1, 41)),
    "10 of 10 of 10": even(10, 10, 10),
    "binary, 8 levels": even(*[2] * 8),
    # Twenty places in five groups of one part, ten places in the other as they are.
    "uneven depth": [
        np.repeat([0, 1], [20, 10]),
        np.append(np.repeat(np.arange(5), 4), 5 + np.arange(10)),
        np.arange(30),
    ],
}


def question_of(labels: list[IntArray]) -> Nested:
    """All nodes of a tree, each once: what has no parts is a node of the first level where it stands alone."""
    levels = [Partition.of(each) for each in labels]
    nodes = [
        (k, cell)
        for k, level in enumerate(levels)
        for cell in range(level.cells)
        if k == 0 or levels[k - 1].counts[levels[k - 1].labels[level.members[cell]]] > 1
    ]
    return Nested(Marginal.of([levels[-1].size], {0: None}), 0, tuple(levels), np.array(nodes))


def error(question: Nested, kind: str, multipliers: Sequence[float]) -> float:
    """The root mean square over all nodes, where all that is measured costs one."""
    whole = sum(m * m for m in multipliers) ** 0.5 if kind == "gaussian" else sum(multipliers)
    parts = tuple(
        Part(part.marginal, multiplier=round(_FINE * m / max(multipliers)))
        for part, m in zip(question.parts, multipliers, strict=True)
        if round(_FINE * m / max(multipliers))
    )
    # Noise of variance one on what is multiplied, which the price is then paid for.
    variances = Residuals(question.sizes).variances_after(question, TableStrategy(parts), 1.0)
    return math.sqrt(float(variances.mean())) * _FINE / max(multipliers) * whole


def rows() -> Iterator[list[Any]]:
    """Of the table."""
    for name, labels in TREES.items():
        question = question_of(labels)
        cells = [level.cells for level in question.levels]
        divisions = {"leaves": [*[0.0] * (len(cells) - 1), 1.0], "equal": [1.0] * len(cells)}
        divisions |= {f"n^{power:.2g}": [n**power for n in cells] for power in POWERS}
        offered = [divisions["leaves"], *([float(p.multiplier) for p in each.parts] for each in serving(question))]
        for kind in ("gaussian", "laplace"):
            found = {division: error(question, kind, m) for division, m in divisions.items()}
            best = min(error(question, kind, m) for m in offered)
            least = min(best, *found.values())
            for start in ([0.0] * len(cells), [math.log(n) / 3 for n in cells]):
                search = minimize(
                    lambda x, kind=kind, question=question: error(question, kind, np.exp(x).tolist()),
                    start,
                    method="Nelder-Mead",
                    options=_SEARCH,
                )
                least = min(least, float(search.fun))
            yield [name, len(question.nodes), kind, *(each / least for each in found.values()), best / least]


def main() -> None:
    """Compare all, and print and write the table."""
    columns = ["tree", "nodes", "noise", "leaves", "equal", *(f"n^{power:.2g}" for power in POWERS), "offered"]
    report("hierarchies", "Counts by a hierarchy, errors over the least", columns, list(rows()))


if __name__ == "__main__":
    main()
