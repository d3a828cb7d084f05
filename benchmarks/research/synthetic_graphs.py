"""How far the cuts of synthetic graphs are from those of the graph, for the same epsilon.

Run ``python -m benchmarks.research.synthetic_graphs [--quick] [--released | --blocks] [GRAPH ...]``: of all graphs, a
quarter of an hour or more on a quiet machine. ``--quick`` plays a small random graph alone and writes nothing. The
graphs are those of ``../shared/data``; what is not there is left out. Chance comes from NumPy with a fixed seed: these
are figures, not releases.

Every way is given the same epsilon:

* *noisy edges*: every pair's bit flipped, unbiased: weights of any sign;
* *clipped*: the same, put within 0 and 1 one by one;
* *nearest*: weights within 0 and 1 nearest to the noisy edges in cut norm (on graphs of up to ``NEAREST`` nodes);
* *degrees*: ``min(1, a_i c_j)`` of degrees with Laplace noise;
* *spectral*: singular values above the noise, of noisy edges alone;
* *both*: the same beside degrees, which the part ``degrees_share`` of epsilon is spent on.

With ``--released`` it is what the service releases that is played. Plans, noise and what is made of it are the
service's: for all of a budget, which is paid by the pure sum, and for the same epsilon of a budget twice as large,
which is paid by the Renyi sum:

* *histogram*: unbiased values of all pairs;
* *edges alone*: ``spectral_graph`` of the same;
* *synthetic graph*: edges and degrees, as ``synthetic_graph`` measures them.

With ``--blocks`` it is *both*, where somebody asked for the sums between groups of nodes. Graphs are those of
:mod:`.graphs_data`, groups the communities there:

* *nothing*: nobody asked;
* *before*: it was asked for a tenth of epsilon, which was spent before;
* *of it*: it was asked for a tenth of epsilon, and the graph has the rest.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np

from app.curator.dataset import PublicDataset
from app.curator.feasibility import find_plan
from app.curator.planners.cells import EdgePlan
from app.curator.request import parse_request
from app.declarations.spec import Spec, parse_spec
from app.geometry.cut_norm import cut_norm
from app.measurements.noise import BitFlips
from app.measurements.record import Measurement
from app.measurements.strategy import Strategy
from app.privacy.ledger import Account
from app.releases.edge_results import edge_values
from app.releases.noisy_blocks import NoisyBlocks
from app.releases.synthetic_graph import (
    NoisyDegrees,
    NoisyEdges,
    degrees_graph,
    degrees_share,
    nearest_graph,
    spectral_graph,
)
from app.spaces.dense import CountsTensor
from app.spaces.factory import space_of
from app.spaces.tensor import FloatArray
from benchmarks.harness import RESULTS, report
from benchmarks.research.flipped_graphs import from_flipped
from benchmarks.research.graphs_data import Graph as Listed
from benchmarks.research.graphs_data import cut_sums
from benchmarks.research.graphs_data import graph as listed
from benchmarks.research.graphs_methods import noisy_degrees as noisy_listed_degrees
from benchmarks.research.graphs_methods import noisy_edges as noisy_listed_edges
from benchmarks.research.regret_data import DATA
from benchmarks.research.undirected_cuts import undirected_cut_norm

EPSILONS = (0.5, 1.0, 2.0, 4.0)
#: Of releases, and how many times larger the budgets are that these are parts of.
RELEASED, BUDGETS = (1.0, 2.0), (1, 2)
DELTA = 1e-9
#: Nodes up to which the nearest weights are sought, and the rounds of the search.
NEAREST, ROUNDS = 1200, 100
#: Graphs with groups, and the part of epsilon that sums between these take.
WITH_BLOCKS, BLOCKS = ("sbm", "email", "chameleon", "lastfm"), 0.1
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


def declared(of: Graph, budget: float) -> Spec:
    """The declaration of a graph with a budget."""
    return parse_spec(
        {
            "name": "graph",
            "kind": "graph",
            "nodes": of.nodes,
            "directed": not of.undirected,
            "weighted": False,
            "budget": {"epsilon": budget, "delta": DELTA},
        }
    )


def plan_of(of: Graph, method: str, epsilon: float, budget: float) -> EdgePlan:
    """The service's plan of a release with an epsilon, the first of a budget."""
    spec = declared(of, budget)
    asked = {
        "dataset": "graph",
        "epsilon": Decimal(epsilon),
        "max_queries": 1,
        "mechanism": {"construction": "workload", "method": method, "workload": {"cuts": "all"}, "options": {}},
    }
    left = Account(PublicDataset(spec).budget).whole
    plan = find_plan(PublicDataset(spec, left=left), parse_request(asked))
    assert isinstance(plan, EdgePlan)
    return plan


def measured(of: Graph, plan: EdgePlan, rng: np.random.Generator) -> list[Measurement[Strategy]]:
    """What a plan measures, with its noise."""
    data, flips = CountsTensor(of.edges.astype(np.int8)), plan.buy.noise
    assert isinstance(flips, BitFlips)
    space = space_of(declared(of, 1.0))  # which is the same whatever the budget
    cells = plan.buy.strategy.exact(space, data).astype(np.uint8)
    turned = (rng.random(len(cells)) < float(flips.probability)).astype(np.uint8)
    made: list[Measurement[Strategy]] = [Measurement(plan.buy.strategy, flips, cells ^ turned)]
    if plan.degrees is not None:
        exact, scale = plan.degrees.strategy.exact(space, data), float(plan.degrees.noise.scale)
        if plan.degrees.noise.kind == "gaussian":
            noise = np.rint(rng.normal(0, scale, len(exact)))
        else:
            noise = np.subtract(*rng.geometric(1 - math.exp(-1 / scale), (2, len(exact))))
        made.append(Measurement(plan.degrees.strategy, plan.degrees.noise, exact + noise.astype(np.int64)))
    return made


def released(of: Graph, epsilon: float, budget: float, seed: int = 0) -> tuple[str, dict[str, float]]:
    """The sum that pays, and the largest errors of what is released."""
    plans = {method: plan_of(of, method, epsilon, budget) for method in ("histogram", "synthetic_graph")}
    rng = np.random.default_rng([seed, 3])
    found = {method: measured(of, plan, rng) for method, plan in plans.items()}
    ways = {
        "histogram": (found["histogram"], "histogram"),
        "edges alone": (found["histogram"], "synthetic_graph"),
        "synthetic graph": (found["synthetic_graph"], "synthetic_graph"),
    }
    errors = {}
    for name, (releases, method) in ways.items():
        cells, _ = edge_values(releases, method, {}, beta=0.05, seed=seed, progress=lambda _: None)
        errors[name] = largest(of, cells.edges.matrix(cells.values))
    return plans["synthetic_graph"].regime, errors


def groups_of(of: Listed) -> NoisyBlocks:
    """The exact sums between the communities of a graph."""
    rows, columns = of.labels
    shape = int(rows.max()) + 2, int(columns.max()) + 2
    known = np.ones(shape)
    # Of those in no community, which there are not, nothing is asked.
    known[-1] = known[:, -1] = np.inf
    named = NoisyBlocks(rows, columns, np.zeros(shape), known, of.undirected)
    return replace(named, values=named.sums(of.matrix.toarray().astype(np.float64)))


def noisy_blocks(exact: NoisyBlocks, epsilon: float, rng: np.random.Generator) -> NoisyBlocks:
    """Sums with Laplace noise of scale 1/epsilon, of a symmetric matrix those of edges."""
    noise = rng.laplace(0, 1 / epsilon, exact.values.shape)
    twice: FloatArray = np.ones(noise.shape)
    if exact.symmetric:
        noise, twice = np.triu(noise) + np.triu(noise, 1).T, 1 + np.eye(len(noise))
    return replace(exact, values=exact.values + twice * noise, variances=exact.variances * 2 * (twice / epsilon) ** 2)


def beside_blocks(of: Listed, epsilon: float, seed: int = 0) -> dict[str, list[float]]:
    """Of each way: the root mean square errors of the sums, of unions of groups, and of random cuts, and the largest
    error of a cut that is found.
    """
    rng, exact = np.random.default_rng([seed, 4]), groups_of(of)
    blocks = noisy_blocks(exact, BLOCKS * epsilon, rng)
    cuts = np.random.default_rng([seed, 5])
    unions, random = (_sides(of, groups, cuts) for groups in (of.labels, tuple(map(np.arange, of.shape))))
    found = {}
    for way, part, told in (("nothing", 1.0, []), ("before", 1.0, [blocks]), ("of it", 1 - BLOCKS, [blocks])):
        share = degrees_share(part * epsilon)
        edges = noisy_listed_edges(of, (1 - share) * part * epsilon, rng)
        edges = replace(edges, values=edges.values.astype(np.float64))
        degrees = noisy_listed_degrees(of, share * part * epsilon, rng)
        off = spectral_graph(edges, degrees, told) - of.matrix.toarray()
        sums = exact.sums(off)[:-1, :-1] / (1 + of.undirected * np.eye(*(size - 1 for size in exact.values.shape)))
        usual = [float(np.sqrt(np.mean(np.square(each)))) for each in (sums, *_errors(of, off, unions, random))]
        norm = undirected_cut_norm if of.undirected else cut_norm
        found[way] = [*usual, norm(off, sweeps=10, kicks=1, certified=False).lower]
    return found


def _sides(of: Listed, groups: Sequence[np.ndarray], rng: np.random.Generator) -> list[np.ndarray]:
    """Random unions of groups to the left and to the right, of 10% to 50% of them."""
    drawn = (rng.random((CUTS, int(side.max()) + 1)) < rng.uniform(0.1, 0.5, (CUTS, 1)) for side in groups)
    return [chosen[:, side] for chosen, side in zip(drawn, groups, strict=True)]


def _errors(of: Listed, off: np.ndarray, *cuts: list[np.ndarray]) -> list[np.ndarray]:
    return [cut_sums(off.astype(np.float32), lefts, rights, of.undirected) for lefts, rights in cuts]


def report_blocks(names: Sequence[str], folder: Path | None) -> None:
    """Play synthetic graphs that know of groups."""
    assert DATA is not None
    rows: list[list[Any]] = []
    for name in names:
        of = listed(name, DATA)
        for epsilon in RELEASED:
            for way, errors in beside_blocks(of, epsilon).items():
                rows.append([name, epsilon, way, *errors])
        columns = ["graph", "epsilon", "blocks", "sums", "unions of groups", "random cuts", "largest"]
        title = "Errors of synthetic graphs that know of groups"
        report("synthetic_graphs_blocks", title, columns, rows, folder=folder, random_cuts=CUTS, seed=0)


def report_released(sources: dict[str, Callable[[], Graph]], folder: Path | None) -> None:
    """Play what is released of every graph."""
    rows: list[list[Any]] = []
    for make in sources.values():
        of = make()
        for epsilon in RELEASED:
            for times in BUDGETS:
                regime, errors = released(of, epsilon, times * epsilon)
                rows.append([of.name, of.nodes, epsilon, times * epsilon, regime, *errors.values()])
        columns = ["graph", "nodes", "epsilon", "budget", "paid by", *errors]
        title = "The largest error of a cut that is found, of what is released"
        report("synthetic_graphs_released", title, columns, rows, folder=folder, delta=DELTA, seed=0)


def main() -> None:
    """Play every graph at every epsilon."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a small random graph alone; writes nothing")
    parser.add_argument("--released", action="store_true", help="what the service releases")
    parser.add_argument("--blocks", action="store_true", help="where somebody asked for sums between groups")
    parser.add_argument("graphs", nargs="*", help="names of graphs; all that are there if none is named")
    arguments = parser.parse_args()
    if arguments.blocks:
        report_blocks(arguments.graphs or WITH_BLOCKS, None if arguments.quick else RESULTS)
        return
    quick, there = arguments.quick, graphs(DATA)
    sources = {name: there[name] for name in arguments.graphs or there}
    if quick:
        sources = {"four communities": lambda: communities(120, np.random.default_rng(0))}
    if arguments.released:
        report_released(sources, None if quick else RESULTS)
        return
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
