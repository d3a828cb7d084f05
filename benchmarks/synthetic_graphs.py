"""How far the cuts of synthetic graphs are from those of the graph, for the same epsilon.

Run ``python -m benchmarks.synthetic_graphs [--quick] [GRAPH ...]``: of all graphs, a quarter of an hour or more on a
quiet machine. ``--quick`` plays a small random graph alone and writes nothing. The graphs are those of
``../shared/data``; what is not there is left out. Chance comes from NumPy with a fixed seed: these are figures, not
releases.

Every way is given the same epsilon:

* *noisy edges*: every pair's bit flipped, unbiased: weights of any sign;
* *clipped*: the same, put within 0 and 1 one by one;
* *nearest*: weights within 0 and 1 nearest to the noisy edges in cut norm (on graphs of up to ``NEAREST`` nodes);
* *degrees*: ``min(1, a_i c_j)`` of degrees with Laplace noise;
* *spectral*: singular values above the noise, of noisy edges alone;
* *both*: the same beside degrees, which the part ``degrees_share`` of epsilon is spent on.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from app.geometry.cut_norm import cut_norm, undirected_cut_norm
from app.releases.synthetic_graph import (
    NoisyDegrees,
    NoisyEdges,
    degrees_graph,
    degrees_share,
    from_flipped,
    nearest_graph,
    spectral_graph,
)
from benchmarks.harness import RESULTS, report
from benchmarks.regret_data import DATA

EPSILONS = (0.5, 1.0, 2.0, 4.0)
#: Nodes up to which the nearest weights are sought, and the rounds of the search.
NEAREST, ROUNDS = 1200, 100
#: Random cuts that the root mean square is taken over.
CUTS = 300


@dataclass(frozen=True, eq=False)
class Graph:
    """A graph without loops: its 0/1 matrix, symmetric if undirected."""

    name: str
    edges: np.ndarray
    undirected: bool

    @property
    def nodes(self) -> int:
        return len(self.edges)


def graph(name: str, pairs: np.ndarray, nodes: int, *, undirected: bool) -> Graph:
    """The graph of an edge list, loops dropped, each edge counted once."""
    edges = np.zeros((nodes, nodes))
    edges[pairs[:, 0], pairs[:, 1]] = 1
    if undirected:
        edges = np.maximum(edges, edges.T)
    np.fill_diagonal(edges, 0)
    return Graph(name, edges, undirected)


def graphs(folder: Path | None) -> dict[str, Callable[[], Graph]]:
    """The graphs that are there, read when they are asked for."""
    files: dict[str, tuple[str, int, bool, dict[str, Any]]] = {
        "email-Eu-core": ("email-Eu-core.txt", 1005, False, {}),
        "wikipedia-chameleon": ("chameleon_edges.csv", 2277, True, {"delimiter": ",", "skiprows": 1}),
        "facebook_combined": ("facebook_combined.txt", 4039, True, {"skiprows": 2, "usecols": (0, 1)}),
    }

    def reader(name: str) -> Callable[[], Graph]:
        file, nodes, undirected, how = files[name]
        assert folder is not None
        pairs = folder / name / file
        return lambda: graph(name, np.loadtxt(pairs, dtype=np.int64, **how), nodes, undirected=undirected)

    return {name: reader(name) for name in files if folder is not None and (folder / name / files[name][0]).is_file()}


def communities(nodes: int, rng: np.random.Generator) -> Graph:
    """A small random graph of four communities."""
    side = np.arange(nodes) % 4
    odds = np.where(side[:, None] == side, 0.3, 0.03)
    return graph("four communities", np.argwhere(np.triu(rng.random((nodes, nodes)) < odds, 1)), nodes, undirected=True)


def noisy_edges(of: Graph, epsilon: float, rng: np.random.Generator) -> NoisyEdges:
    """Randomised response on every pair."""
    flip = 1 / (1 + math.exp(epsilon))
    turned = rng.random(of.edges.shape) < flip
    if of.undirected:
        turned = np.triu(turned, 1)
        turned |= turned.T
    return from_flipped(np.where(turned, 1 - of.edges, of.edges), flip, undirected=of.undirected, loops=False)


def noisy_degrees(of: Graph, epsilon: float, rng: np.random.Generator) -> NoisyDegrees:
    """Degrees with Laplace noise of scale 2/epsilon: an edge is counted by two of them."""
    scale = 2 / epsilon
    left = of.edges.sum(axis=1) + rng.laplace(0, scale, of.nodes)
    right = left if of.undirected else of.edges.sum(axis=0) + rng.laplace(0, scale, of.nodes)
    return NoisyDegrees(left, right, scale * math.sqrt(2))


def ways(of: Graph, epsilon: float, seed: int) -> dict[str, Callable[[], np.ndarray | None]]:
    """The weights of every way, made when they are asked for; None where a way is not tried."""
    rng = np.random.default_rng([seed, 1])  # not the numbers that a random graph was made of
    edges = noisy_edges(of, epsilon, rng)
    share = degrees_share(epsilon)
    fewer = noisy_edges(of, (1 - share) * epsilon, rng)
    degrees, rough = (noisy_degrees(of, part * epsilon, rng) for part in (1.0, share))

    def nearest() -> np.ndarray | None:
        return nearest_graph(edges, rounds=ROUNDS).weights if of.nodes <= NEAREST else None

    return {
        "noisy edges": lambda: edges.values,
        "clipped": lambda: np.clip(edges.values, 0, 1) * (1 - np.eye(of.nodes)),
        "nearest": nearest,
        "degrees": lambda: degrees_graph(degrees, undirected=of.undirected, loops=False),
        "spectral": lambda: spectral_graph(edges),
        "both": lambda: spectral_graph(fewer, rough),
    }


def largest(of: Graph, weights: np.ndarray) -> float:
    """The largest error of a cut that is found; the true one is a little larger."""
    found = undirected_cut_norm if of.undirected else cut_norm
    return found(weights - of.edges, sweeps=20, kicks=1, certified=False).lower


def usual(of: Graph, weights: np.ndarray, rng: np.random.Generator) -> float:
    """The root mean square error over random cuts whose sides have 10% to 50% of the nodes."""
    off = weights - of.edges
    s, t = (rng.random((of.nodes, CUTS)) < rng.uniform(0.1, 0.5, (2, 1, CUTS))[side] for side in (0, 1))
    errors = np.einsum("ij,ij->j", s.astype(float), off @ t.astype(float))
    if of.undirected:
        both = (s & t).astype(float)
        errors -= np.einsum("ij,ij->j", both, off @ both) / 2
    return float(np.sqrt(np.mean(errors**2)))


def played(of: Graph, epsilon: float, seed: int = 0) -> tuple[dict[str, float | None], dict[str, float | None]]:
    """Largest and usual errors of every way."""
    found: tuple[dict[str, float | None], dict[str, float | None]] = ({}, {})
    for name, make in ways(of, epsilon, seed).items():
        weights = make()
        found[0][name] = None if weights is None else largest(of, weights)
        found[1][name] = None if weights is None else usual(of, weights, np.random.default_rng([seed, 2]))
    return found


def main() -> None:
    """Play every graph at every epsilon."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a small random graph alone; writes nothing")
    parser.add_argument("graphs", nargs="*", help="names of graphs; all that are there if none is named")
    arguments = parser.parse_args()
    quick, there = arguments.quick, graphs(DATA)
    sources = {name: there[name] for name in arguments.graphs or there}
    if quick:
        sources = {"four communities": lambda: communities(120, np.random.default_rng(0))}
    rows: tuple[list[list[Any]], list[list[Any]]] = ([], [])
    for make in sources.values():
        of = make()
        for epsilon in EPSILONS:
            for table, errors in zip(rows, played(of, epsilon), strict=True):
                edges = int(of.edges.sum()) // (1 + of.undirected)
                table.append([of.name, of.nodes, edges, epsilon, *errors.values()])
        # After every graph: what is done is written even if the rest is not waited for.
        columns = ["graph", "nodes", "edges", "epsilon", *ways(of, 1.0, 0)]
        folder = None if quick else RESULTS
        facts = {"random_cuts": CUTS, "seed": 0}
        report("synthetic_graphs", "The largest error of a cut that is found", columns, rows[0], folder=folder, **facts)
        report("synthetic_graphs_random", "Usual error of random cuts", columns, rows[1], folder=folder, **facts)


if __name__ == "__main__":
    main()
