"""Sums of cells that are known together, against least squares over all cells of small tables."""

from __future__ import annotations

import math
from decimal import Decimal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.estimation.tables.joint import pooled
from app.estimation.tables.residuals import Residuals
from app.measurements.noise import Noise
from app.measurements.pieces import Combination, Counts
from app.measurements.rows import Rows
from app.spaces.partition import Marginal
from app.spaces.questions import Groups
from tests.evidence.tables import least_squares, least_variance, matrix
from tests.evidence.test_residuals import admitted, partitions, worlds

pytestmark = pytest.mark.unit


@st.composite
def sums(draw: st.DrawFn, sizes: tuple[int, ...]) -> list[Groups]:
    """Two sums of the cells of a marginal for each of several groups, of which the second is a part of the first. Some
    attributes tell groups apart, cell by cell or several at a time; any cells of a group are counted."""
    chosen = sorted(draw(st.lists(st.sampled_from(range(len(sizes))), unique=True, max_size=3)))
    marginal = Marginal.of(sizes, {a: draw(partitions(sizes[a])) for a in chosen})
    answers, shape = np.zeros([1] * len(marginal.shape), np.int64), []
    for axis, cells in enumerate(marginal.shape):
        if draw(st.booleans()):
            labels = np.array(draw(st.lists(st.integers(-1, 2), min_size=cells, max_size=cells)))
            along = labels.reshape([-1 if k == axis else 1 for k in range(len(marginal.shape))])
            answers = np.where((answers >= 0) & (along >= 0), answers * 3 + along, -1)
            shape.append(3)
    answers = np.broadcast_to(answers, marginal.shape)
    inside = np.array(draw(st.lists(st.integers(0, 2), min_size=marginal.cells, max_size=marginal.cells)))
    inside = inside.reshape(marginal.shape)
    return [Groups(marginal, np.where(inside >= least, answers, -1), tuple(shape)) for least in (1, 2)]


def rows_of(one: Groups, sizes: tuple[int, ...]) -> np.ndarray:
    """The weights of each answer on all cells of the table. A plain loop over the marginal's cells."""
    cells = matrix(sizes, one.marginal)
    rows = np.zeros((math.prod(one.shape), cells.shape[1]))
    for cell, answer in enumerate(one.answers.reshape(-1)):
        if answer >= 0:
            rows[answer] += cells[cell]
    return rows


Source = tuple[list[int], np.ndarray, np.ndarray]


def closed_form(sizes: tuple[int, ...], closed: list[Counts], total: float | None, pair: list[np.ndarray]) -> Source:
    """What least squares over all measurements tells of each of two rows, and the covariances of that."""
    values = np.concatenate([*(m.values.reshape(-1) for m in closed), [total or 0.0]])
    variances = np.concatenate([*(np.full(m.marginal.cells, m.variance) for m in closed), [0.0]])
    found = [(k, least_squares(sizes, closed, total, row)) for k, row in enumerate(pair)]
    told = [(k, f[0]) for k, f in found if f is not None]
    on = np.array([o for _, o in told]).reshape(-1, len(values))
    return [k for k, _ in told], on @ values, on @ np.diag(variances) @ on.T


def needed(one: Groups) -> Marginal:
    """The marginal of sums without the attributes that their answers do not depend on."""
    kept, answers = list(one.marginal.attributes), one.answers
    for axis in reversed(range(answers.ndim)):
        if (answers == answers.take([0], axis=axis)).all():
            answers = answers.take(0, axis=axis)
            del kept[axis]
    return one.marginal.onto(frozenset(kept))


def onto(own: np.ndarray, cells: np.ndarray) -> np.ndarray | None:
    """The weights on the cells of a measurement of sums over all cells of the table, a column each, if it has any."""
    on = np.linalg.lstsq(own.T, cells.T, rcond=None)[0]
    return on if np.abs(own.T @ on - cells.T).max(initial=0.0) < 1e-9 else None


def single(sizes: tuple[int, ...], measurement: Counts, sums: list[Groups]) -> list[Source]:
    """What one measurement tells of two sums of each group: of all groups where it tells all cells of what these need,
    or of those of which it tells every cell, whichever is more."""
    own, groups = matrix(sizes, measurement.marginal), range(math.prod(sums[0].shape))
    wholly: list[list[tuple[int, np.ndarray]]] = [[] for _ in groups]
    by_cell: list[list[tuple[int, np.ndarray]]] = [[] for _ in groups]
    for k, one in enumerate(sums):
        if onto(own, matrix(sizes, needed(one))) is not None:
            for group, row in enumerate(rows_of(one, sizes)):
                on = onto(own, row[None])
                assert on is not None
                wholly[group].append((k, on.sum(axis=1)))
        for group in groups:
            on = onto(own, matrix(sizes, one.marginal)[one.answers.reshape(-1) == group])
            if on is not None:
                by_cell[group].append((k, on.sum(axis=1)))
    found = []
    for told in wholly if sum(map(len, wholly)) >= sum(map(len, by_cell)) else by_cell:
        on = np.array([o for _, o in told]).reshape(-1, len(own))
        noise = measurement.variance * on @ on.T
        found.append(([k for k, _ in told], on @ measurement.values.reshape(-1), noise))
    return found


@pytest.mark.slow
@settings(max_examples=100)
@given(st.data())
def test_agrees_with_least_squares(data: st.DataObject) -> None:
    """Values and covariances of two sums of each group. Would catch covariances between groups that are taken in, a
    level that is counted twice or left out, cells of another size, what is taken for known and is not, a public total
    with noise, and measurements that stay apart and are counted as part of the closed form."""
    sizes, total, starting, measurements = data.draw(worlds())
    asked = data.draw(sums(sizes))
    state = Residuals(sizes, total, starting)
    closed, apart = admitted(measurements, starting)
    for measurement in measurements:
        state.add(measurement)
    found = pooled(state.together(asked))
    rows = [rows_of(one, sizes) for one in asked]
    alone = [single(sizes, m, asked) for m in apart]
    for group in range(math.prod(asked[0].shape)):
        told = [closed_form(sizes, closed, total, [row[group] for row in rows])]
        told += [each[group] for each in alone]
        values, covariances = least_variance(told)
        assert found.values[group] == pytest.approx(values[:2], rel=1e-6, abs=1e-6, nan_ok=True)
        assert found.covariances[group] == pytest.approx(covariances[:2, :2], rel=1e-6, abs=1e-6, nan_ok=True)


def test_rows_that_were_released_tell_of_both() -> None:
    """Two rows over three cells determine the first two of them: their sum and the first one, with what their noise has
    in common."""
    marginal = Marginal.of((3,), {0: None})
    rows = Rows.of(np.array([[1, 1, 0], [1, -1, 0]]))
    noise = Noise("gaussian", Decimal(3), 20)
    state = Residuals((3,))
    state.add(Combination(marginal, noise, np.array([10, 4]) << 20, rows=rows))
    both, first = Groups(marginal, np.array([0, 0, -1])), Groups(marginal, np.array([0, -1, -1]))
    found = pooled(state.together([both, first]))
    assert found.values[0] == pytest.approx([10, 7])
    assert found.covariances[0] == pytest.approx(np.array([[9.0, 4.5], [4.5, 4.5]]), rel=1e-3)


@pytest.mark.parametrize("told", [0, 1, 2])
def test_what_rows_do_not_tell_stays_unknown_in_its_place(told: int) -> None:
    """Rows along another attribute tell the number of all records, and no part of them. Would catch a number that is
    taken for the ones beside it, which a share then says to be 1 with an interval of no width."""
    sizes = (3, 2)
    rows = Rows.of(np.array([[1, 1, 0], [1, -1, 0], [0, 0, 1]]))
    state = Residuals(sizes)
    noise = Noise("gaussian", Decimal(3), 20)
    state.add(Combination(Marginal.of(sizes, {0: None}), noise, np.array([10, 4, 5]) << 20, rows=rows))
    marginal = Marginal.of(sizes, {1: None})
    every, part = Groups(marginal, np.array([0, 0])), Groups(marginal, np.array([0, -1]))
    asked = [part, part, part]
    asked[told] = every
    (found,) = (joint for joint in state.together(asked) if joint.known.any())
    assert found.known[0].tolist() == [place == told for place in range(3)]
    assert found.values[0, told] == pytest.approx(15)
    assert np.isnan(np.delete(found.values[0], told)).all()
    assert pooled(state.together(asked)).known[0].tolist() == [place == told for place in range(3)]
