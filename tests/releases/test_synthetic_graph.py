"""Synthetic graphs: nearest in cut norm against a linear program, and less noise than what was measured."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy.optimize import linprog, minimize

from app.geometry.cut_norm import cut_norm
from app.releases.synthetic_graph import (
    NoisyDegrees,
    NoisyEdges,
    capped_product,
    degrees_graph,
    degrees_share,
    drawn_graph,
    nearest_graph,
    spectral_graph,
    within_bounds,
)
from benchmarks.research.flipped_graphs import from_flipped

pytestmark = pytest.mark.unit


def blocks(nodes: int, inside: float, across: float, rng: np.random.Generator) -> np.ndarray:
    """A graph of two communities, undirected."""
    side = np.arange(nodes) < nodes // 2
    edges = np.triu(rng.random((nodes, nodes)) < np.where(side[:, None] == side, inside, across), 1)
    return (edges | edges.T).astype(np.float64)


def flipped(graph: np.ndarray, epsilon: float, rng: np.random.Generator, *, undirected: bool) -> NoisyEdges:
    flip = 1 / (1 + np.exp(epsilon))
    turned = rng.random(graph.shape) < flip
    if undirected:
        turned = np.triu(turned, 1)
        turned = turned | turned.T
    return from_flipped(np.where(turned, 1 - graph, graph), flip, undirected=undirected, loops=not undirected)


def best_distance(values: np.ndarray, free: np.ndarray) -> float:
    """The least cut norm of x - z over x in [0, 1], by all cuts in one linear program."""
    rows, columns = values.shape
    cuts = np.array(
        [
            np.outer(s, t).ravel()
            for s in itertools.product([0.0, 1.0], repeat=rows)
            for t in itertools.product([0.0, 1.0], repeat=columns)
        ]
    )
    held = cuts @ values.ravel()
    ones = np.ones((len(cuts), 1))
    found = linprog(
        np.append(np.zeros(values.size), 1.0),
        A_ub=np.block([[cuts, -ones], [-cuts, -ones]]),
        b_ub=np.concatenate([held, -held]),
        bounds=[(0, float(f)) for f in free.ravel()] + [(0, None)],
    )
    return float(found.fun)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["directed", "undirected", "bipartite"])
def test_nearest_is_the_linear_program(kind: str) -> None:
    """On tiny graphs the certified distance is within 8% of the least of the linear program over all cuts, and the
    bound from below never above it. Would catch a step with the wrong sign, cuts that are not averaged as they
    should be, a bound that is no bound, weights outside of bounds or on a diagonal."""
    rng = np.random.default_rng(1)
    for _ in range(3):
        shape = (4, 5) if kind == "bipartite" else (5, 5)
        values = rng.normal(0.3, 1.0, shape)
        free = np.ones(shape)
        if kind != "bipartite":
            np.fill_diagonal(free, 0)
        if kind == "undirected":
            values = (values + values.T) / 2
        values *= free
        edges = NoisyEdges(values, 1.0, kind == "undirected", kind == "bipartite")
        found = nearest_graph(edges, rounds=400)
        least = best_distance(values, free)
        assert found.least <= least * (1 + 1e-9)
        assert least <= found.distance.upper
        assert found.distance.lower <= 1.08 * least
        assert found.least >= 0.85 * least
        assert found.weights.min() >= 0
        assert np.all(found.weights <= free)
        if kind == "undirected":
            assert np.array_equal(found.weights, found.weights.T)


def test_what_is_possible_is_its_own_nearest() -> None:
    """Values from 0 to 1. Would catch other bounds than these."""
    values = np.random.default_rng(2).uniform(0, 1, (6, 6))
    found = nearest_graph(NoisyEdges(values, 1.0), rounds=3)
    assert found.weights == pytest.approx(values)
    assert found.distance.upper < 1e-9
    assert found.least <= 0


def test_nearest_is_nearer_than_clipped() -> None:
    """Of a sparse noisy graph, what clipping adds to every cut is gone, and the distance has a bound from below that
    is positive. Would catch a search that stays where it starts."""
    rng = np.random.default_rng(3)
    edges = flipped(blocks(60, 0.2, 0.02, rng), 1.0, rng, undirected=True)
    done: list[float] = []
    found = nearest_graph(edges, rounds=300, progress=done.append)
    clipped = cut_norm(np.clip(edges.values, 0, 1) - edges.values).lower
    assert found.distance.upper < 0.6 * clipped
    assert 0.85 * found.distance.lower < found.least <= found.distance.upper
    assert done[-1] == 1.0


@pytest.mark.slow
def test_spectral_removes_noise() -> None:
    """Two communities are seen through the noise: the largest cut errs by less than 0.6 of what the noisy values err
    by, and less than degrees alone, which do not know of communities. Would catch singular values that are not cut
    off, a residual that is not added, sums that clipping moves."""
    rng = np.random.default_rng(4)
    graph = blocks(160, 0.35, 0.05, rng)
    edges = flipped(graph, 1.0, rng, undirected=True)
    weights = spectral_graph(edges)

    def error(found: np.ndarray) -> float:
        return cut_norm(found - graph, sweeps=20, kicks=0, certified=False).lower

    noisy = NoisyDegrees(*[graph.sum(axis=1)] * 2, 1e-3)
    assert error(weights) < 0.6 * error(edges.values)
    assert error(weights) < 0.7 * error(degrees_graph(noisy, undirected=True, loops=False))
    assert error(weights) < 0.2 * error(np.clip(edges.values, 0, 1))
    assert weights.min() >= 0
    assert weights.max() <= 1
    assert np.array_equal(weights, weights.T)
    assert not weights.diagonal().any()


def test_degrees_help() -> None:
    """Degrees measured apart are those of the result, where those of the noisy values are far off. Would catch degrees
    that are ignored, or averaged with the wrong precision."""
    rng = np.random.default_rng(5)
    graph = (rng.random((80, 50)) < np.outer(rng.uniform(0, 1, 80), rng.uniform(0, 0.5, 50))).astype(np.float64)
    edges = flipped(graph, 0.5, rng, undirected=False)
    true = graph.sum(axis=1), graph.sum(axis=0)
    weights = spectral_graph(edges, NoisyDegrees(*true, 1e-6))
    assert weights.sum(axis=1) == pytest.approx(true[0], abs=0.1)
    assert weights.sum(axis=0) == pytest.approx(true[1], abs=0.1)
    without = spectral_graph(edges)
    assert np.abs(without.sum(axis=1) - true[0]).mean() > 2


def test_share_of_degrees() -> None:
    """Small budgets go to degrees, and edges always get a part. Would catch shares of one or above."""
    assert [degrees_share(epsilon) for epsilon in (0.1, 1.0, 2.0, 8.0)] == [0.9, 0.6, 0.3, 0.3]


@pytest.mark.slow
@pytest.mark.parametrize("symmetric", [True, False])
def test_large_matrices_have_the_same_values(symmetric: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Singular values found a few at a time are those of the whole decomposition. Would catch a search that ends before
    the noise is reached, or signs that are lost in a symmetric matrix."""
    rng = np.random.default_rng(6)
    graph = blocks(120, 0.5, 0.05, rng)
    edges = flipped(graph, 2.0, rng, undirected=symmetric)
    whole = spectral_graph(edges)
    monkeypatch.setattr("app.releases.synthetic_graph.SMALL", 100)
    monkeypatch.setattr("app.releases.synthetic_graph._FIRST", 12)
    assert spectral_graph(edges) == pytest.approx(whole, abs=1e-3)


@pytest.mark.parametrize("undirected", [True, False])
def test_capped_product(undirected: bool) -> None:
    """Sums are those asked for, also where weights reach 1, and weights not capped are a product. Would catch a cap
    that moves the sums."""
    left = np.array([5.5, 5.0, 3.0, 2.0, 2.0, 2.0, 2.0, 1.0, 0.0])
    right = left if undirected else left[::-1] * 0.5 + 1.25
    weights = capped_product(left, right, undirected=undirected, loops=False)
    assert weights.sum(axis=1) == pytest.approx(left, abs=0.06)
    assert weights.sum(axis=0) == pytest.approx(right, abs=0.06)
    assert weights.max() <= 1
    assert weights[0, 1] == 1 if undirected else weights[1, 0] < 1
    assert weights[2, 3] * weights[3, 4] == pytest.approx(weights[2, 4] * weights[4, 3])
    assert not capped_product(np.zeros(3), np.zeros(4)).any()


def test_within_bounds_is_the_nearest(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is the projection, by a general solver on a tiny case. Would catch Newton steps that stop short, and sums of
    the clipped weights in place of the wanted."""
    monkeypatch.setattr("app.releases.synthetic_graph._CLOSE", 1e-4)
    monkeypatch.setattr("app.releases.synthetic_graph._FITS", 1000)
    weights = np.random.default_rng(7).uniform(-0.5, 1.2, (4, 4))
    found = within_bounds(weights)
    sums = np.vstack([np.kron(np.eye(4), np.ones(4)), np.kron(np.ones(4), np.eye(4))])
    wanted = sums @ weights.ravel()
    solved = minimize(
        lambda x: np.sum((x - weights.ravel()) ** 2),
        np.full(16, 0.4),
        jac=lambda x: 2 * (x - weights.ravel()),
        bounds=[(0, 1)] * 16,
        constraints=[{"type": "eq", "fun": lambda x: sums[:-1] @ x - wanted[:-1], "jac": lambda x: sums[:-1]}],
        method="SLSQP",
        options={"ftol": 1e-12},
    )
    assert sums @ found.ravel() == pytest.approx(wanted, abs=2e-3)
    assert found.ravel() == pytest.approx(solved.x, abs=2e-3)
    inside = np.random.default_rng(8).uniform(0, 1, (5, 5))
    assert within_bounds(inside) == pytest.approx(inside)


def test_from_flipped() -> None:
    """The mean over both outcomes is the bit, and the deviation that of the two outcomes. Would catch a flip the wrong
    way round."""
    flip = 0.3
    zero, one = (from_flipped(np.full((2, 2), bit), flip) for bit in (0.0, 1.0))
    assert flip * one.values + (1 - flip) * zero.values == pytest.approx(0.0)
    assert flip * zero.values + (1 - flip) * one.values == pytest.approx(1.0)
    mean_square = flip * one.values[0, 0] ** 2 + (1 - flip) * zero.values[0, 0] ** 2
    assert zero.deviation == pytest.approx(mean_square**0.5)
    assert not from_flipped(np.ones((2, 2)), flip, loops=False).values.diagonal().any()


@pytest.mark.parametrize("undirected", [True, False])
def test_drawn(undirected: bool) -> None:
    """Edges come with their weights as probabilities, and both directions of an undirected one together."""
    rng = np.random.default_rng(9)
    weights = np.array([[0.0, 0.2, 1.0], [0.2, 0.0, 0.7], [1.0, 0.7, 0.0]])
    drawn = np.array([drawn_graph(weights, rng, undirected=undirected) for _ in range(4000)])
    assert set(np.unique(drawn)) == {0.0, 1.0}
    assert drawn.mean(axis=0) == pytest.approx(weights, abs=0.04)
    assert np.array_equal(drawn, drawn.transpose(0, 2, 1)) == undirected


@pytest.mark.parametrize(
    ("values", "how"),
    [
        (np.ones(3), {}),
        (np.array([[np.nan]]), {}),
        (np.ones((2, 2)), {"deviation": 0.0}),
        (np.ones((2, 2)), {"loops": False}),
        (np.zeros((2, 3)), {"loops": False}),
        (np.array([[0.0, 1.0], [2.0, 0.0]]), {"undirected": True, "loops": False}),
        (np.zeros((2, 2)), {"undirected": True}),
    ],
)
def test_refused(values: np.ndarray, how: dict[str, object]) -> None:
    with pytest.raises(ValueError):
        NoisyEdges(values, **{"deviation": 1.0, **how})  # type: ignore[arg-type]


@pytest.mark.parametrize("flip", [0.0, 0.5, 0.7])
def test_refused_flips(flip: float) -> None:
    with pytest.raises(ValueError):
        from_flipped(np.ones((2, 2)), flip)
