"""A node of one side in the place of an edge as the unit of privacy: what it costs.

Run ``python -m benchmarks.research.graph_units [DIR]`` (a minute or two). Of each user of deezer and of lastfm at most
m edges are kept, and 300 mixed cuts are asked in a session of the service's own choice that has the whole budget,
epsilon 1 and delta 1e-9, without a server. Errors are root mean squares: of answers beside the graph that was kept
(*noise*), of that beside the graph as it is (*dropped*), and of answers beside the graph as it is (*both*).
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
from scipy.sparse import csr_array
from threadpoolctl import threadpool_limits

from benchmarks.harness import report
from benchmarks.research import graphs_auto
from benchmarks.research.graphs_data import Graph, graph, made
from benchmarks.research.regret_data import DATA

GRAPHS, CAPS = ("deezer", "lastfm"), (None, 1, 3, 10, 30)
EPSILON, DELTA, SEEDS = 1.0, 1e-9, 3


def capped(of: Graph, most: int, rng: np.random.Generator) -> Graph:
    """At most so many edges of each left node, at random."""
    kept = of.matrix.tocoo()
    order = np.lexsort((rng.random(kept.nnz), kept.row))
    rows, columns = kept.row[order], kept.col[order]
    begins = np.searchsorted(rows, rows)
    chosen = np.arange(len(rows)) - begins < most
    matrix = csr_array((kept.data[order][chosen], (rows[chosen], columns[chosen])), shape=of.shape)
    return replace(of, matrix=matrix)


def row(name: str, of: Graph, most: int | None) -> list[object]:
    """One line of the table."""
    errors, dropped, both, kept, scale, mode = [], [], [], 0, 0.0, ""
    for seed in range(SEEDS):
        asked = made(of, "few", seed)
        there = of if most is None else capped(of, most, np.random.default_rng([seed, 5]))
        declared = {} if most is None else {"unit": {"side": "left", "max_edges": most}}
        auto = graphs_auto.make(there, EPSILON, DELTA, len(asked.truths), seed, **declared)
        values = np.array([auto.answer(a, b)[0] for a, b in zip(asked.lefts, asked.rights, strict=True)])
        truths = there.truths(asked.lefts, asked.rights)
        errors.append(values - truths)
        dropped.append(truths - asked.truths)
        both.append(values - asked.truths)
        kept, plan = there.edges, auto.session.plan
        mode, scale = plan.document()["mode"], plan.question_error  # type: ignore[attr-defined]

    def rms(found: list[np.ndarray]) -> float:
        return float(np.sqrt(np.mean(np.concatenate(found) ** 2)))

    unit = "an edge" if most is None else f"{most} edges of a user"
    return [name, unit, kept / of.edges, mode, scale, rms(errors), rms(dropped), rms(both)]


def main() -> None:
    """Measure and report."""
    data = Path(sys.argv[1]) if len(sys.argv) > 1 else DATA
    if data is None:
        sys.exit("no data: see the docstring")
    with threadpool_limits(1):
        graphs = {name: graph(name, data) for name in GRAPHS}
        rows = [row(name, of, most) for name, of in graphs.items() for most in CAPS]
    columns = ["graph", "unit", "part kept", "mode", "error foretold", "noise", "dropped", "both"]
    report("graph_units", "A user in the place of an edge as the unit", columns, rows, epsilon=EPSILON, delta=DELTA)


if __name__ == "__main__":
    main()
