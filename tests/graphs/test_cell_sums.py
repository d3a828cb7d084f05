"""Sums of measured cells with the help of degrees, against least squares over all cells."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.estimation.graphs.cells import EdgeValues, Sums, of_sums
from app.estimation.graphs.expectation import averaged
from app.measurements.strategies.edges import CellKind
from app.spaces.cuts import CutQuestion
from tests.graphs.graphs import KINDS, cells, cut, data, eighths, nodes, question, shapes, weights

pytestmark = pytest.mark.unit


def degrees_of(
    kind: CellKind, matrix: np.ndarray, variance: float, noise: tuple[np.ndarray, np.ndarray], across: float = 1.0
) -> Sums:
    """Noisy sums; of a matrix those of columns have noise of a variance so many times that of rows."""
    rows, columns = matrix.sum(axis=1) + noise[0], matrix.sum(axis=0) + noise[1]
    return Sums(rows, rows if kind == "pairs" else columns, variance, variance * (across if kind == "all" else 1.0))


def least_squares(values: EdgeValues, weight: np.ndarray) -> tuple[float, float]:
    """The best linear unbiased value and its variance: the normal equations of every cell and every sum."""
    kind, shape = values.kind, values.matrix.shape
    places = list(zip(*np.nonzero(cells(kind, (shape[0], shape[1]))), strict=True))
    design, told, precision = [], [], []
    for k, (i, j) in enumerate(places):
        design.append(np.eye(len(places))[k])
        told.append(float(values.matrix[i, j]))
        precision.append(1 / values.variance)
    if values.degrees is not None:
        rows, columns, row_variance, column_variance = values.degrees
        for node in range(shape[0]):
            touched = [float(node in cell) if kind == "pairs" else float(node == cell[0]) for cell in places]
            design.append(np.array(touched))
            told.append(rows[node])
            precision.append(1 / row_variance)
        for node in range(0 if kind == "pairs" else shape[1]):
            design.append(np.array([float(node == cell[1]) for cell in places]))
            told.append(columns[node])
            precision.append(1 / column_variance)
    a, w = np.array(design), np.array(precision)
    inverse = np.linalg.inv(a.T @ (w[:, None] * a))
    on = np.array([weight[cell] for cell in places])
    return float(on @ inverse @ a.T @ (w * np.array(told))), float(on @ inverse @ on)


@given(
    st.sampled_from(KINDS),
    st.booleans(),
    st.booleans(),
    st.sampled_from([0.01, 1.0, 30.0]),
    st.sampled_from([1.0, 7.0]),
    st.integers(0, 10**6),
    st.data(),
)
def test_values_are_those_of_least_squares(
    kind: CellKind, real: bool, beside: bool, ratio: float, across: float, seed: int, drawn: st.DataObject
) -> None:
    """Cuts and rank-one queries, with degrees and without. Would catch a closed form of other systems, columns that
    take the coefficients of rows, and a variance that leaves out what degrees tell.
    """
    shape = drawn.draw(shapes(kind, most=5))
    rng = np.random.default_rng(seed)
    noise = rng.integers(-16, 17, shape[0]) / 8, rng.integers(-16, 17, shape[1]) / 8
    degrees = degrees_of(kind, data(rng, kind, shape), 1.5 * ratio, noise, across) if beside else None
    values = EdgeValues(kind, data(rng, kind, shape).astype(np.float32), 1.5, degrees)
    asked = question(rng, kind, shape, real=real)
    value, variance = values.of(asked)
    expected = least_squares(values, weights(asked))
    assert value == pytest.approx(expected[0], rel=1e-6, abs=1e-6)
    assert variance == pytest.approx(expected[1], rel=1e-6, abs=1e-9)


@given(st.integers(1, 5), st.integers(1, 5), st.sampled_from([0.1, 2.0, 40.0]), st.integers(0, 10**6))
def test_sums_of_an_oblong_matrix_are_those_of_least_squares(n: int, m: int, variance: float, seed: int) -> None:
    """The sums of cells averaged with degrees, against least squares over all cells and the degrees of one side. Would
    catch one variance for both sides, that of the other side, and degrees that count as much as the sums of cells.
    """
    rng, cell = np.random.default_rng(seed), 1.5
    matrix, degrees = data(rng, "all", (n, m)).astype(np.float32), (rng.normal(size=n), rng.normal(size=m))
    values = EdgeValues("all", matrix, cell)
    found = averaged([Sums(*degrees, variance, variance), values.sums])
    sides = (found.rows, found.row_variance, np.eye(n)), (found.columns, found.column_variance, np.eye(m))
    for side, (sums, told, units) in enumerate(sides):
        # Of a side the design: every cell by itself, and every sum of that side.
        counted = np.kron(units, np.ones((1, m))) if side == 0 else np.kron(np.ones((1, n)), units)
        design = np.concatenate([np.eye(n * m), counted])
        precision = np.concatenate([np.full(n * m, 1 / cell), np.full(len(units), 1 / variance)])
        inverse = np.linalg.inv(design.T @ (precision[:, None] * design))
        best = inverse @ design.T @ (precision * np.concatenate([matrix.reshape(-1), degrees[side]]))
        assert sums == pytest.approx(counted @ best)
        assert np.full(len(units), told) == pytest.approx(np.diag(counted @ inverse @ counted.T))


@given(st.sampled_from(KINDS), st.booleans(), st.integers(0, 10**6), st.data())
def test_values_are_unbiased(kind: CellKind, real: bool, seed: int, drawn: st.DataObject) -> None:
    """A linear value is unbiased where it is right without noise. Would catch coefficients of degrees that are not
    taken off the cells, and loops that are among a node's cells.
    """
    shape = drawn.draw(shapes(kind, most=12))
    rng = np.random.default_rng(seed)
    matrix = data(rng, kind, shape)
    degrees = degrees_of(kind, matrix, 2.0, (np.zeros(shape[0]), np.zeros(shape[1])))
    asked = question(rng, kind, shape, real=real)
    truth = float((weights(asked) * matrix).sum())
    assert EdgeValues(kind, matrix.astype(np.float32), 3.0, degrees).of(asked)[0] == pytest.approx(truth, abs=1e-9)


@pytest.mark.parametrize("kind", KINDS)
def test_sums_of_the_cells_alone(kind: CellKind) -> None:
    """Would catch rows taken for columns, and sums that are not in double precision."""
    rng = np.random.default_rng(3)
    matrix = data(rng, kind, (6, 6)) + 2.0**20 * (data(rng, kind, (6, 6)) > 0.5)
    values = EdgeValues(kind, matrix.astype(np.float32), 0.5)
    sums = values.sums
    assert sums.rows.tolist() == matrix.sum(axis=1).tolist()
    assert sums.columns.tolist() == matrix.sum(axis=0).tolist()
    assert (sums.row_variance, sums.column_variance) == (3.0, 3.0)
    assert values.nbytes == 144


#: What the variance may be beyond the least, so that few sums tell a question.
MOST = 17 / 16


def by_sums_alone(kind: CellKind, asked: CutQuestion, sums: Sums) -> float | None:
    """The least variance of all ways to write a question as a sum of rows and columns: least squares of the weights of
    all cells, each way of the length that its noise has."""
    n, m = asked.left.length, asked.right.length
    on = cells(kind, (n, m))
    deviations = np.sqrt([sums.row_variance] * n + ([] if kind == "pairs" else [sums.column_variance] * m))
    lines = []
    for node in range(n):
        line = np.zeros((n, m))
        line[node] = 1
        lines.append(line + line.T if kind == "pairs" else line)
    for node in range(0 if kind == "pairs" else m):
        line = np.zeros((n, m))
        line[:, node] = 1
        lines.append(line)
    design = np.array([line[on] for line in lines]).T / deviations
    wanted = weights(asked)[on]
    found, *_ = np.linalg.lstsq(design, wanted, rcond=1e-10)
    if not wanted.any() or np.abs(design @ found - wanted).max() > 1e-9:
        return None
    return float(found @ found)


@pytest.mark.parametrize("kind", KINDS)
def test_cuts_that_are_sums_of_degrees(kind: CellKind) -> None:
    """All cuts of six nodes. Would catch inner edges that count once where two degrees have them, a single node that
    is not told by its degree, all nodes that are told by one side alone, and cuts that no sum of degrees is."""
    shape = (6, 5) if kind == "all" else (6, 6)
    matrix = data(np.random.default_rng(5), kind, shape)
    rows, columns = matrix.sum(axis=1), matrix.sum(axis=0)
    sums = Sums(rows, rows if kind == "pairs" else columns, 2.0, 2.0 if kind == "pairs" else 0.5)
    sides = [[nodes(k, np.flatnonzero((which >> np.arange(k)) & 1)) for which in range(1 << k)] for k in shape]
    told = 0
    for left in sides[0]:
        for right in sides[1]:
            asked = cut(kind, left, right)
            found, expected = of_sums(kind, asked, sums), by_sums_alone(kind, asked, sums)
            assert (found is None) == (expected is None)
            if found is not None and expected is not None:
                told += 1
                assert found.value == pytest.approx(float((weights(asked) * matrix).sum()), abs=1e-9)
                assert expected - 1e-9 <= found.variance <= MOST * expected + 1e-9
                if kind == "pairs":
                    assert float(found.weights @ found.weights) * 2.0 == pytest.approx(found.variance)
    assert told >= 10


@given(st.sampled_from(KINDS), st.integers(0, 10**6), st.data())
def test_weights_that_are_sums_of_degrees(kind: CellKind, seed: int, drawn: st.DataObject) -> None:
    """Where one side weighs all nodes alike, or nearly so. Would catch weights of nodes that are taken for ones, a sum
    that is not the truth where the degrees are, and a variance that is not that of the noise of each of them."""
    shape = drawn.draw(shapes(kind, most=7))
    rng = np.random.default_rng(seed)
    left = rng.integers(0 if kind == "pairs" else -8, 9, shape[0]) * (rng.random(shape[0]) < rng.choice([0.2, 1.0]))
    right = np.where(np.arange(shape[1]) < rng.integers(2), 0, 8)
    asked = cut(kind, eighths(left), eighths(right))
    matrix = data(rng, kind, shape)
    rows, columns = matrix.sum(axis=1), matrix.sum(axis=0)
    sums = Sums(rows, rows if kind == "pairs" else columns, 1.0, 1.0)
    found = of_sums(kind, asked, sums)
    if kind == "all" or min(shape) > 5:
        assert (found is None) == (by_sums_alone(kind, asked, sums) is None)
    if found is not None:
        assert found.value == pytest.approx(float((weights(asked) * matrix).sum()), abs=1e-8)
        units = [Sums(unit[: shape[0]], unit[-shape[1] :], 1.0, 1.0) for unit in np.eye(sum(shape))]
        if kind == "pairs":
            units = [Sums(unit, unit, 1.0, 1.0) for unit in np.eye(shape[0])]
        moved = [each.value for each in (of_sums(kind, asked, unit) for unit in units) if each is not None]
        assert float(np.square(moved).sum()) == pytest.approx(found.variance, abs=1e-9)
        assert sorted(np.abs(moved)) == pytest.approx(
            sorted([0.0] * (len(moved) - len(found.weights)) + np.abs(found.weights).tolist()), abs=1e-9
        )


def test_rows_with_weights_are_told() -> None:
    """A rank-one query that weighs rows and all columns alike. Would catch cuts alone that are told."""
    rng = np.random.default_rng(6)
    matrix, left = data(rng, "all", (6, 4)), np.array([-8, 3, 0, 1, 8, 5])
    asked = cut("all", eighths(left), eighths(np.full(4, 8)))
    sums = Sums(matrix.sum(axis=1), matrix.sum(axis=0), 3.0, 2.0)
    found, expected = of_sums("all", asked, sums), by_sums_alone("all", asked, sums)
    assert found is not None
    assert expected is not None
    assert expected - 1e-9 <= found.variance <= MOST * expected
    assert found.value == pytest.approx(float(left / 8 @ matrix.sum(axis=1)))
