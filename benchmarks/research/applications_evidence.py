"""Random cuts of real graphs: evidence beside a construction's hypothesis and independent noise.

Run `python -m benchmarks.research.applications_evidence --data DIR`. Graphs, privacy and random questions are those of
:mod:`benchmarks.research.applications_real`: each node is on either side with probability 1/2. The construction is
`mw`, planned as there for a million questions, with the number of updates that lasted there; evidence and the noise are
planned for the questions that are asked. Sessions run without a server (:mod:`benchmarks.research.graphs_auto`).
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_array
from threadpoolctl import threadpool_limits

from app.spaces.queries.weights import product
from app.spaces.tensor import FloatArray
from benchmarks.harness import RESULTS, report
from benchmarks.research.applications_data import DELTA
from benchmarks.research.applications_measure import MECHANISMS
from benchmarks.research.applications_play import Game, Private, Terms
from benchmarks.research.applications_real import SOURCES
from benchmarks.research.graphs_auto import make
from benchmarks.research.graphs_data import BoolArray, Graph
from benchmarks.research.graphs_methods import Gaussian

EPSILON, PLANNED = 1.0, 10**6
#: Graphs of :mod:`benchmarks.research.applications_real`, and whether their sides are different things.
GRAPHS = {"email-Eu-core": False, "deezer": True, "lastfm": True}


def cuts(of: Graph, asks: int, seed: int) -> Iterator[tuple[BoolArray, BoolArray]]:
    """The random questions of a trial."""
    rng = np.random.default_rng(seed)
    for _ in range(asks):
        left, right = (rng.random(side) < 0.5 for side in of.shape)
        yield left, right


def by_evidence(of: Graph, asks: int, seed: int) -> FloatArray:
    """Errors of a session that chooses for itself."""
    session = make(of, EPSILON, DELTA, asks, seed)
    return np.array([session.answer(*cut)[0] - of.truth(*cut) for cut in cuts(of, asks, seed)])


def by_noise(of: Graph, asks: int, seed: int) -> FloatArray:
    """Errors of independent Gaussian noise."""
    noise = Gaussian.maker("gaussian", clipped=False)(of, EPSILON, DELTA, asks, seed)
    return np.array([noise.answer(*cut)[0] - of.truth(*cut) for cut in cuts(of, asks, seed)])


def by_weights(of: Graph, data: Private, updates: int, asks: int, seed: int) -> FloatArray:
    """Errors of a session of multiplicative weights."""
    game, space = Game(data, MECHANISMS["mw"], Terms(EPSILON, PLANNED), updates), data.public.space
    asked = (product(space, dict(enumerate(map(np.flatnonzero, cut)))) for cut in cuts(of, asks, seed))
    return np.array([game.ask(query)[1] for query in asked])


def updates_that_lasted(name: str) -> int:
    """The number of updates with which sessions of multiplicative weights answered all that was asked of a graph."""
    found = json.loads((RESULTS / "applications_real.json").read_text())
    rows = (dict(zip(found["columns"], row, strict=True)) for row in found["rows"])
    return int(next(row["updates"] for row in rows if (row["data"], row["mechanism"]) == (name, "mw")).replace(",", ""))


def measured(name: str, folder: Path, asks: int, seeds: int) -> Iterator[list[Any]]:
    """A row a way to answer: root mean square over all seeds, medians over seeds of the others."""
    data, _ = SOURCES[name].load(folder, EPSILON)
    assert data.counts is not None
    of = Graph(name, csr_array(data.counts), bipartite=GRAPHS[name])
    updates = updates_that_lasted(name)
    ways: dict[str, Callable[[Graph, int, int], FloatArray]] = {
        "evidence (`auto`)": by_evidence,
        "independent Gaussian noise": by_noise,
        f"mw, {updates} updates, planned for 10^6": lambda of, asks, seed: by_weights(of, data, updates, asks, seed),
    }
    for way, errors_of in ways.items():
        started = time.perf_counter()
        errors = np.abs([errors_of(of, asks, seed) for seed in range(seeds)])
        row = [name, way, seeds, asks, float(np.sqrt(np.mean(errors**2)))]
        row += [float(np.median(found)) for found in (np.quantile(errors, 0.95, axis=1), errors.max(axis=1))]
        print(f"{name} {way}: {row[4]:,.1f} in {time.perf_counter() - started:.0f} s", flush=True)
        yield row


def main() -> None:
    """Measure all, and print and write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder of the real graphs")
    parser.add_argument("--seeds", type=int, help="the same for all; else those of the sessions compared with")
    chosen = parser.parse_args()
    with threadpool_limits(1):
        rows = [
            row
            for name in GRAPHS
            for row in measured(name, chosen.data, SOURCES[name].asks, chosen.seeds or SOURCES[name].seeds)
        ]
    columns = ["data", "answered by", "seeds", "questions", "root mean square", "95th percentile", "largest"]
    title = f"Random cuts of real graphs, epsilon = {EPSILON:g}, delta = {DELTA:g}: errors"
    report("applications_evidence", title, columns, rows)


if __name__ == "__main__":
    main()
