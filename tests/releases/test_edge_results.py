"""What is made of measured cells: values and graphs in the order of the cells, and what is said of them."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np
import pytest

from app.measurements.noise import BitFlips, Noise
from app.measurements.record import Measurement
from app.measurements.strategies.degrees import Degrees
from app.measurements.strategies.edges import Edges
from app.releases.edge_results import edge_values, known_degrees, synthetic_graph

pytestmark = pytest.mark.unit

SHAPES = [((30, 30), "pairs"), ((30, 30), "arcs"), ((20, 30), "all")]


def truth(edges: Edges) -> Any:
    """Two communities, cell by cell."""
    rows, columns = edges.ends()
    return ((rows < 12) == (columns < 12)).astype(np.uint8)


def told(_part: float) -> None:
    """Nobody listens."""


@pytest.mark.slow
@pytest.mark.parametrize(("shape", "kind"), SHAPES)
@pytest.mark.parametrize("options", [{}, {"geometry": "cut_norm"}, {"rounding": "edges"}])
def test_a_graph_is_found_where_noise_is_small(shape: Any, kind: Any, options: dict[str, Any]) -> None:
    """With next to no noise the synthetic graph is the graph, cell by cell. Would catch cells that change places on the
    way into a matrix and back, a diagonal that is taken for data, and values that are not scaled.
    """
    edges = Edges(shape, kind)
    cells = truth(edges)
    noisy = cells + np.random.default_rng(1).normal(0, 1e-3, edges.cells)
    made, summary = synthetic_graph(edges, noisy, 1e-3, None, options, seed=3, progress=told)
    assert made.shape == (edges.cells,)
    assert made.min() >= 0
    assert made.max() <= 1
    assert np.abs(made - cells).max() <= (1 if "rounding" in options else 0.05)
    assert np.abs(made - cells).mean() < 0.01
    assert summary["mass"] == pytest.approx(made.sum())
    assert summary["geometry"] == options.get("geometry", "spectral")
    again, _ = synthetic_graph(edges, noisy, 1e-3, None, options, seed=3, progress=told)
    assert np.array_equal(made, again)


def test_the_stated_distance_holds_for_cuts() -> None:
    """The distance bounds every cut of the made graph less the noisy values. Would catch one of another matrix."""
    edges, rng = Edges((24, 24), "arcs"), np.random.default_rng(2)
    noisy = truth(edges) + rng.normal(0, 1, edges.cells)
    made, summary = synthetic_graph(edges, noisy, 1.0, None, {"geometry": "cut_norm"}, seed=1, progress=told)
    off = edges.matrix(made - noisy)
    for _ in range(2000):
        left, right = rng.random((2, 24)) < 0.5
        assert abs(off[np.ix_(left, right)].sum()) <= summary["distance"]
    assert 0 < summary["least_distance"] <= summary["distance"]


def test_bits_are_told_where_they_are_all() -> None:
    """Of one release of bits they stand beside the values, of several there are averages alone. Would catch bits of one
    release that are shown as those of all.
    """
    edges = Edges((9, 9), "pairs")
    release = Measurement(edges, BitFlips(1 << 51), np.arange(edges.cells) % 2)
    one, summary = edge_values([release], "histogram", {}, beta=0.05, seed=0, progress=told)
    both, halved = edge_values([release, release], "auto", {}, beta=0.05, seed=0, progress=told)
    assert one.bits is not None
    assert np.array_equal(one.bits, release.units)
    assert one.values == pytest.approx(both.values)
    assert both.bits is None
    assert halved["cell_error"] == pytest.approx(summary["cell_error"] / 2**0.5, rel=1e-4)


@pytest.mark.parametrize(("shape", "kind"), SHAPES)
def test_all_degrees_count(shape: Any, kind: Any) -> None:
    """Where cells are as good as nothing, the made graph has the degrees that were measured, the average of all by
    precision. Would catch degrees that are left out, sides that change places, and an average that is not by precision.
    """
    edges, rng = Edges(shape, kind), np.random.default_rng(0)
    degrees = Degrees(edges)
    cells = Measurement(edges, BitFlips((1 << 52) - (1 << 44)), rng.integers(0, 2, edges.cells))
    matrix = edges.matrix(truth(edges).astype(float))
    left, right = matrix.sum(axis=1), matrix.sum(axis=0)
    exact = left if kind == "pairs" else np.concatenate([left, right])
    many = []
    for scale in (0.25, 4.0):
        noise = Noise("gaussian", Decimal(repr(scale)), 4)
        many.append(Measurement(degrees, noise, np.rint(16 * (exact + rng.normal(0, scale, len(exact))))))
    known = known_degrees(many)
    assert known is not None
    assert known.deviation == pytest.approx((1 / (0.25**-2 + 4.0**-2)) ** 0.5)
    assert known.left == pytest.approx(left, abs=1.5)
    assert known.right == pytest.approx(right, abs=1.5)
    made, summary = edge_values([many[0], cells, many[1]], "synthetic_graph", {}, beta=0.05, seed=0, progress=told)
    found = edges.matrix(made.values)
    assert found.sum(axis=1) == pytest.approx(left, abs=2)
    assert found.sum(axis=0) == pytest.approx(right, abs=2)
    assert (summary["measurements"], summary["degree_error"]) == (1, pytest.approx(known.deviation, rel=1e-5))
    assert known_degrees([]) is None
