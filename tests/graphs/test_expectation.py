"""What is expected of cells from noisy sums of rows and columns."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.estimation.graphs.cells import Sums
from app.estimation.graphs.expectation import Expectation, averaged, expectation
from app.measurements.strategies.edges import CellKind
from app.spaces.cuts import CutQuestion
from tests.graphs.graphs import KINDS, cells, cut, data, nodes, question, shapes, weights

pytestmark = pytest.mark.unit


def noisy_sums(rng: np.random.Generator, kind: CellKind, matrix: np.ndarray, variance: float) -> Sums:
    rows, columns = (matrix.sum(axis=k) + rng.normal(0, math.sqrt(variance), matrix.shape[1 - k]) for k in (1, 0))
    return Sums(rows, rows if kind == "pairs" else columns, variance, variance)


def everything(kind: CellKind, shape: tuple[int, int]) -> CutQuestion:
    return cut(kind, *(nodes(n, np.arange(n)) for n in shape))


def matrix_of(expected: Expectation) -> np.ndarray:
    """All expected cells of the matrix, written out."""
    made = np.minimum(1.0, np.outer(expected.cells.rows, expected.cells.columns))
    if expected.kind != "all":
        np.fill_diagonal(made, 0.0)
    return made


def graph(rng: np.random.Generator, kind: CellKind, shape: tuple[int, int], density: float) -> np.ndarray:
    """Edges of nodes that differ."""
    chance = np.minimum(1, np.outer(rng.gamma(2, 0.5, shape[0]), rng.gamma(2, 0.5, shape[1])) * density)
    made = np.where(cells(kind, shape), rng.random(shape) < chance, 0).astype(float)
    return made + made.T if kind == "pairs" else made


@given(st.sampled_from(KINDS), st.integers(0, 10**6), st.sampled_from([0.1, 4.0, 100.0]), st.data())
def test_sums_are_those_of_the_expected_cells(kind: CellKind, seed: int, variance: float, drawn: st.DataObject) -> None:
    """What is expected of a question, of rows and of columns are all of one matrix of cells, symmetric where cells are
    pairs. Would catch one side's sums for the other's, and parts of another total.
    """
    shape = drawn.draw(shapes(kind))
    rng = np.random.default_rng(seed)
    degrees = [noisy_sums(rng, kind, data(rng, kind, shape), variance)] * drawn.draw(st.integers(0, 1))
    expected = expectation(kind, shape, degrees)
    made, asked = matrix_of(expected), question(rng, kind, shape)
    assert ((made >= 0) & (made <= 1)).all()
    if kind == "pairs":
        assert made == pytest.approx(made.T, abs=1e-12)
        assert expected.left.sums == pytest.approx(expected.right.sums)
    assert expected.left.sums == pytest.approx(made.sum(axis=1), abs=1e-9)
    assert expected.right.sums == pytest.approx(made.sum(axis=0), abs=1e-9)
    assert expected.total == pytest.approx(max(made.sum(), 1e-9))
    assert expected.value(asked) == pytest.approx((weights(asked) * made).sum(), abs=1e-9)
    total = max(made.sum(), 1e-9)
    assert expected.of_rows(asked.left) == pytest.approx(made[asked.left.places].sum() / total)
    assert expected.of_columns(asked.right) == pytest.approx(made[:, asked.right.places].sum() / total)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_the_total_is_the_best_unbiased_one(kind: CellKind) -> None:
    """Of rows and columns both, each by its precision: few rows tell the total better than many columns do. Would catch
    the mean of both, and of pairs one measurement that counts as two. The variance stated is that of the total.
    """
    rng, variance = np.random.default_rng(8), 30.0
    shape = (40, 160) if kind == "all" else (90, 90)
    truth = graph(rng, kind, shape, 0.2)
    errors, told, expected = [], 0.0, 0.0
    for _ in range(150):
        noisy = noisy_sums(rng, kind, truth, variance)
        found = expectation(kind, shape, [noisy])
        told = found.total_variance
        by_rows, by_columns = noisy[0].sum(), noisy[1].sum()
        best = 0.8 * by_rows + 0.2 * by_columns if kind == "all" else (by_rows + by_columns) / 2
        assert found.total == pytest.approx(best, rel=5e-3)
        errors.append(found.total - truth.sum())
        expected = found.value(everything(kind, shape)) * (2 if kind == "pairs" else 1)
        assert expected == pytest.approx(found.total)
    assert told == pytest.approx({"all": 0.8 * 40 * 30, "arcs": 45 * 30, "pairs": 90 * 30}[kind])
    assert abs(np.mean(errors)) < 4 * math.sqrt(told / 150) + 0.002 * truth.sum()
    assert np.var(errors) == pytest.approx(told, rel=0.4)


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_known(kind: CellKind) -> None:
    """Half of all cells are expected, within what any could be. Would catch a certainty that there is not."""
    shape = (6, 4) if kind == "all" else (6, 6)
    found = expectation(kind, shape, [])
    assert matrix_of(found) == pytest.approx(np.where(cells("all" if kind == "all" else "arcs", shape), 0.5, 0))
    assert not found.certain
    assert math.sqrt(found.total_variance) == pytest.approx(shape[0] * shape[1] / math.sqrt(12))
    assert (found.left.noise == 0).all()
    assert (found.left.shape > 0).all()


@given(st.integers(0, 10**6), st.integers(1, 4))
def test_measurements_are_averaged_by_precision(seed: int, count: int) -> None:
    """Would catch weights by deviations, columns averaged as rows are not, and a variance that does not fall."""
    rng = np.random.default_rng(seed)
    told = [Sums(rng.normal(size=3), rng.normal(size=5), *rng.uniform(0.1, 9, 2).tolist()) for _ in range(count)]
    found = averaged(told)
    for side in range(2):
        precision = np.array([1 / each[2 + side] for each in told])
        assert found[side] == pytest.approx(np.average([each[side] for each in told], axis=0, weights=precision))
        assert found[2 + side] == pytest.approx(1 / precision.sum())


def test_two_measurements_are_one_of_half_the_variance() -> None:
    """Would catch a second measurement that is left out."""
    rng = np.random.default_rng(9)
    truth = graph(rng, "arcs", (50, 50), 0.2)
    first, second = (noisy_sums(rng, "arcs", truth, 8.0) for _ in range(2))
    both = Sums((first.rows + second.rows) / 2, (first.columns + second.columns) / 2, 4.0, 4.0)
    found, one = expectation("arcs", (50, 50), [first, second]), expectation("arcs", (50, 50), [both])
    assert found.left.sums == pytest.approx(one.left.sums)
    assert found.right.noise == pytest.approx(one.right.noise)
    assert found.total_variance == pytest.approx(one.total_variance)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_told(kind: CellKind) -> None:
    """Sums with little noise tell nodes that differ apart, with much they do not; columns that are all alike are not
    told beside rows that are. Would catch one side that speaks for both.
    """
    rng, shape = np.random.default_rng(10), (800, 800)
    truth = graph(rng, kind, shape, 0.2)
    assert expectation(kind, shape, [noisy_sums(rng, kind, truth, 20.0)]).certain
    assert not expectation(kind, shape, [noisy_sums(rng, kind, truth, 30_000.0)]).certain
    if kind == "all":
        rows, columns, *variances = noisy_sums(rng, kind, np.repeat(np.linspace(0, 1, 800), 800).reshape(shape), 20.0)
        assert not expectation(kind, shape, [Sums(rows, columns, *variances)]).certain
        assert not expectation(kind, shape, [Sums(columns, rows, *variances)]).certain


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_full_is_expected_to_be(kind: CellKind) -> None:
    """Of rows that have all their cells each cell is expected, and varies by next to nothing beside others. Would catch
    a cap that comes after the weights, and cells that chance moves where there is no chance.
    """
    rng, shape = np.random.default_rng(11), (60, 60)
    truth = np.where(rng.random(shape) < 0.15, 1.0, 0.0)
    truth[:3] = 1.0
    if kind == "pairs":
        truth = np.maximum(truth, truth.T)
    if kind != "all":
        np.fill_diagonal(truth, 0)
    found = expectation(kind, shape, [noisy_sums(rng, kind, truth, 0.01)])
    made = matrix_of(found)
    assert made[:3].sum() == pytest.approx(truth[:3].sum(), rel=0.02)
    assert found.left.weights[:3].mean() < 0.1 * found.left.weights[3:].mean()
    whole = expectation(kind, shape, [noisy_sums(rng, kind, np.where(cells_of(kind, shape), 1.0, 0.0), 0.01)])
    assert matrix_of(whole).sum() == pytest.approx(cells_of(kind, shape).sum(), rel=0.01)


def cells_of(kind: CellKind, shape: tuple[int, int]) -> np.ndarray:
    """The entries that hold data, of pairs each twice."""
    return cells("all" if kind == "all" else "arcs", shape)


@pytest.mark.parametrize("kind", KINDS)
def test_errors_of_sums_are_as_told(kind: CellKind) -> None:
    """The error of an expected row is that of the noise that is left and of the posterior's own together: it is what
    both variances add up to on average. Would catch one of both that is left out.
    """
    rng, shape, variance = np.random.default_rng(12), (400, 400), 40.0
    truth = graph(rng, kind, shape, 0.05)
    found = expectation(kind, shape, [noisy_sums(rng, kind, truth, variance)])
    error = ((found.left.sums - truth.sum(axis=1)) ** 2).mean()
    assert (found.left.noise + found.left.shape).mean() == pytest.approx(error, rel=0.25)
    # The noise that is left is what a mean moves with its noisy sum; the rest is what the posterior adds.
    both = found.left.noise + found.left.shape
    assert found.left.noise == pytest.approx(both**2 / variance)
