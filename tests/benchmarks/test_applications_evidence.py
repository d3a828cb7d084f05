"""The comparison of evidence with a hypothesis measures what it says, on a tiny graph."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.sparse import csr_array

from app.demo.baseline import gaussian_sigma
from benchmarks.research import applications_evidence as benchmark
from benchmarks.research.applications_data import DELTA, directed_data
from benchmarks.research.applications_real import SOURCES
from benchmarks.research.graphs_data import Graph

pytestmark = [pytest.mark.unit, pytest.mark.slow]

NODES, ASKS = 40, 400


@pytest.fixture(scope="module")
def matrix() -> np.ndarray:
    edges = (np.random.default_rng(3).random((NODES, NODES)) < 0.2).astype(np.int64)
    np.fill_diagonal(edges, 0)
    return edges


def test_noise_is_that_of_the_budget(matrix: np.ndarray) -> None:
    """Independent noise errs by the ledger's deviation, which is a little more than that of the exact calibration.
    Would catch noise for another number of questions, and errors that are not those of the answers.
    """
    errors = benchmark.by_noise(Graph("g", csr_array(matrix)), ASKS, 0)
    rms, least = math.sqrt(np.mean(errors**2)), gaussian_sigma(1.0, DELTA, ASKS)
    assert 0.85 * least < rms < 1.4 * least


def test_sessions_err_less_than_the_graph_has_edges(matrix: np.ndarray) -> None:
    """Would catch an answer that is held against the truth of another question."""
    of = Graph("g", csr_array(matrix))
    evidence = benchmark.by_evidence(of, ASKS, 0)
    weights = benchmark.by_weights(of, directed_data(matrix, 1.0), 4, ASKS, 0)
    for errors in (evidence, weights):
        assert len(errors) == ASKS
        assert math.sqrt(np.mean(errors**2)) < 0.1 * matrix.sum()


def test_questions_are_halves(matrix: np.ndarray) -> None:
    """The same for the same seed, and other ones for another."""
    of = Graph("g", csr_array(matrix))
    one, again, other = ([np.stack(cut) for cut in benchmark.cuts(of, 50, seed)] for seed in (1, 1, 2))
    np.testing.assert_array_equal(one, again)
    assert (np.array(one) != np.array(other)).any()
    assert np.mean(one) == pytest.approx(0.5, abs=0.03)


def test_updates_are_those_of_the_table() -> None:
    """Would catch a graph that the other benchmark does not have."""
    for name in benchmark.GRAPHS:
        assert name in SOURCES
        assert benchmark.updates_that_lasted(name) >= SOURCES[name].first
