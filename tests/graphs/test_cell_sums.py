"""Sums of measured cells with the help of degrees, against least squares over all cells."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.estimation.graphs.cells import EdgeValues, Sums
from app.estimation.graphs.expectation import averaged
from app.measurements.strategies.edges import CellKind
from tests.graphs.graphs import KINDS, cells, data, question, shapes, weights

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
