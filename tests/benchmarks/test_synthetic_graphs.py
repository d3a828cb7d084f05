"""The benchmark of synthetic graphs measures what it says, at tiny sizes."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest

from benchmarks.research import synthetic_graphs as benchmark
from benchmarks.research.graphs_data import of_pairs

pytestmark = pytest.mark.unit


def tiny(*, undirected: bool) -> benchmark.Graph:
    pairs = np.array([[0, 1], [1, 0], [1, 2], [2, 2], [3, 1], [3, 1]])
    return benchmark.graph("tiny", pairs, 4, undirected=undirected)


def test_graph() -> None:
    """Loops are dropped, and an edge counts once however often it is listed. Would catch one that counts twice."""
    assert tiny(undirected=False).edges.sum() == 4
    assert tiny(undirected=True).edges.sum() == 6
    assert not tiny(undirected=False).edges.diagonal().any()


def test_graphs_that_are_there(tmp_path: Path) -> None:
    """What is not there is left out; what is there is read with its header skipped and both columns."""
    assert benchmark.graphs(None) == {}
    folder = tmp_path / "wikipedia-chameleon"
    folder.mkdir()
    (folder / "chameleon_edges.csv").write_text("id1,id2\n0,5\n7,2276\n")
    found = benchmark.graphs(tmp_path)
    assert list(found) == ["wikipedia-chameleon"]
    read = found["wikipedia-chameleon"]()
    assert (read.nodes, read.undirected) == (2277, True)
    assert read.edges[2276, 7] == read.edges[5, 0] == 1
    assert read.edges.sum() == 4


@pytest.mark.parametrize("undirected", [True, False])
def test_noise_is_unbiased(undirected: bool) -> None:
    """Noisy edges and degrees are the true ones on average, with the deviation that they say. Would catch chance that
    the graph was made of too, and a sensitivity that counts one end of an edge."""
    of, rng = tiny(undirected=undirected), np.random.default_rng(3)
    drawn = [benchmark.noisy_edges(of, 1.0, rng) for _ in range(3000)]
    values = np.array([edges.values for edges in drawn])
    assert values.mean(axis=0) == pytest.approx(of.edges, abs=6 * drawn[0].deviation / 3000**0.5)
    assert values[:, 0, 2].std() == pytest.approx(drawn[0].deviation, rel=0.1)
    degrees = [benchmark.noisy_degrees(of, 1.0, rng) for _ in range(3000)]
    left = np.array([d.left for d in degrees])
    assert left.mean(axis=0) == pytest.approx(of.edges.sum(axis=1), abs=0.4)
    assert left.std(axis=0) == pytest.approx(degrees[0].deviation, rel=0.15)
    assert degrees[0].deviation == pytest.approx(8**0.5)


@pytest.mark.parametrize("undirected", [True, False])
def test_errors(undirected: bool) -> None:
    """The largest error is that of all cuts; the usual one is zero for the graph itself and below the largest. Would
    catch an undirected pair that counts twice."""
    of = tiny(undirected=undirected)
    weights = np.random.default_rng(4).uniform(0, 1, (4, 4))
    weights = (weights + weights.T) / 2 if undirected else weights
    np.fill_diagonal(weights, 0)
    sets = [np.array(bits, dtype=float) for bits in itertools.product([0, 1], repeat=4)]
    off = weights - of.edges
    errors = [
        abs(s @ off @ t - (0.5 * (s * t) @ off @ (s * t) if undirected else 0))
        for s, t in itertools.product(sets, repeat=2)
    ]
    assert benchmark.largest(of, weights) == pytest.approx(max(errors))
    assert 0 < benchmark.usual(of, weights, np.random.default_rng(5)) < max(errors)
    assert benchmark.usual(of, of.edges, np.random.default_rng(5)) == 0


def test_ways(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every way is played on the same graph, and the nearest is left out where the graph is too large. Would catch a
    way that sees the graph itself."""
    of = benchmark.communities(24, np.random.default_rng(0))
    largest, usual = benchmark.played(of, 2.0)
    assert list(largest) == list(usual) == ["noisy edges", "clipped", "nearest", "degrees", "spectral", "both"]
    assert all(value is not None and value > 1 for value in largest.values())
    ways = benchmark.ways(of, 2.0, 0)
    assert ways["clipped"]().min() >= 0  # type: ignore[union-attr]
    assert not np.array_equal(ways["noisy edges"](), of.edges)  # type: ignore[arg-type]
    monkeypatch.setattr(benchmark, "NEAREST", 23)
    assert ways["nearest"]() is None


@pytest.mark.slow
@pytest.mark.parametrize("undirected", [True, False])
def test_what_is_released(undirected: bool) -> None:
    """Of a budget and of a part of one, plans are the service's, and the graph that is measured is the one that is
    played. Would catch noise of another plan, and a release of the graph itself.
    """
    of = benchmark.communities(60, np.random.default_rng(0))
    of = benchmark.Graph(of.name, of.edges if undirected else np.triu(of.edges), undirected)
    rng = np.random.default_rng(1)
    for budget, regime in ((1.0, "pure"), (2.0, "renyi")):
        plan = benchmark.plan_of(of, "synthetic_graph", 1.0, budget)
        assert plan.regime == regime
        edges, degrees = benchmark.measured(of, plan, rng)
        off = edges.values - edges.strategy.flattened(of.edges)  # type: ignore[union-attr]
        assert abs(off.mean()) < 6 * edges.variance**0.5 / len(off) ** 0.5
        assert off.std() == pytest.approx(edges.variance**0.5, rel=0.1)
        exact = of.edges.sum(axis=1) if undirected else np.concatenate([of.edges.sum(axis=1), of.edges.sum(axis=0)])
        assert (degrees.values - exact).std() == pytest.approx(degrees.variance**0.5, rel=0.5)
        told, errors = benchmark.released(of, 1.0, budget)
        assert told == regime
        assert 0 < errors["synthetic graph"] < errors["histogram"]


@pytest.mark.parametrize("undirected", [True, False])
def test_beside_blocks(undirected: bool) -> None:
    """Noisy sums are the exact ones on average, with the variance that they say, and a graph that knows of them errs
    less between its groups. Would catch sums that are drawn of another graph, and errors of other groups.
    """
    side = np.arange(90) % 3
    odds = np.where(side[:, None] == side, 0.5, 0.05)
    pairs = np.argwhere(np.triu(np.random.default_rng(0).random((90, 90)) < odds, 1))
    of = of_pairs("g", pairs, (90, 90), undirected=undirected)
    of.__dict__["labels"] = side, side
    exact, rng = benchmark.groups_of(of), np.random.default_rng(1)
    sums = np.array([benchmark.noisy_blocks(exact, 0.5, rng).values for _ in range(2000)])
    variances = benchmark.noisy_blocks(exact, 0.5, rng).variances
    off = (sums - exact.values)[:, exact.known]
    assert off.mean(axis=0) == pytest.approx(0, abs=6 * variances[exact.known].max() ** 0.5 / 2000**0.5)
    assert off.var(axis=0) == pytest.approx(variances[exact.known], rel=0.25)
    matrix = of.matrix.toarray()
    assert exact.values[0, 1] == matrix[np.ix_(side == 0, side == 1)].sum()
    found = benchmark.beside_blocks(of, 1.0)
    assert list(found) == ["nothing", "before", "of it"]
    assert found["before"][0] < 0.5 * found["nothing"][0]
    assert found["of it"][1] < 0.5 * found["nothing"][1]
