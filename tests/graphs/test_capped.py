"""Capped rank-one matrices, against matrices that are written out."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.estimation.graphs.capped import Capped

pytestmark = pytest.mark.unit

#: The part of all cells by which sums may be off that were looked for.
NEAR = 0.005


def written(cells: Capped) -> np.ndarray:
    """All expected cells. A plain loop."""
    made = np.zeros((len(cells.rows), len(cells.columns)))
    for i, j in np.ndindex(made.shape):
        if i != j or cells.loops:
            made[i, j] = min(1.0, cells.rows[i] * cells.columns[j])
    return made


def drawn(rng: np.random.Generator, n: int, m: int, scale: float, *, loops: bool, symmetric: bool = False) -> Capped:
    """Factors with a tail; some are zero, and some are equal."""
    rows, columns = (np.round(rng.gamma(0.7, scale, size), 1 + int(rng.integers(3))) for size in (n, m))
    return Capped(rows, rows if symmetric else columns, loops)


scales = st.sampled_from([0.02, 0.3, 1.0, 5.0])


@given(st.integers(1, 9), st.integers(1, 9), scales, st.booleans(), st.integers(0, 10**6))
def test_sums_are_those_of_the_matrix(n: int, m: int, scale: float, loops: bool, seed: int) -> None:
    """Sums of rows, of both sides and of the matrix turned round, with weights of either sign. Would catch columns that
    are capped by one too many, equal factors in the wrong order, and a diagonal that counts.
    """
    rng = np.random.default_rng(seed)
    cells = drawn(rng, n, m if loops else n, scale, loops=loops)
    matrix = written(cells)
    left, right = (rng.normal(size=size) for size in matrix.shape)
    assert cells.row_sums(right) == pytest.approx(matrix @ right, abs=1e-9)
    assert cells.flipped().row_sums(left) == pytest.approx(left @ matrix, abs=1e-9)
    rows, columns = (np.flatnonzero(rng.random(size) < 0.7) for size in matrix.shape)
    expected = left[rows] @ matrix[np.ix_(rows, columns)] @ right[columns]
    assert cells.sum(rows, left[rows], columns, right[columns]) == pytest.approx(expected, abs=1e-9)
    assert cells.capless == bool((np.outer(cells.rows, cells.columns) <= 1).all())


@pytest.mark.parametrize("loops", [True, False])
def test_factors_that_differ_by_far(loops: bool) -> None:
    """Of full rows factors are huge. Would catch small ones that are lost beside them."""
    cells = Capped(np.array([1e15, 1.0, 1e-3]), np.array([2e12, 0.5, 1e-10]), loops)
    assert cells.row_sums(np.ones(3)) == pytest.approx(written(cells).sum(axis=1), rel=1e-9)
    assert cells.flipped().row_sums(np.ones(3)) == pytest.approx(written(cells).sum(axis=0), rel=1e-9)


@given(st.integers(1, 9), st.booleans(), st.integers(0, 10**6))
def test_the_shortcut_says_what_the_long_way_does(n: int, loops: bool, seed: int) -> None:
    """Where no cell is capped; with one more column that is, and weighs nothing, sums are taken with caps. Would catch
    one of the two that is of another matrix.
    """
    rng = np.random.default_rng(seed)
    cells = Capped(rng.random(n), rng.random(n), loops)
    more = Capped(np.append(cells.rows, 2.0), np.append(cells.columns, 2.0), loops)
    assert cells.capless
    assert not more.capless
    left, right = rng.normal(size=n), rng.normal(size=n)
    every, wider = np.arange(n), np.arange(n + 1)
    short = cells.sum(every, left, every, right)
    assert more.sum(wider, np.append(left, 0), wider, np.append(right, 0)) == pytest.approx(short, abs=1e-9)
    assert more.row_sums(np.append(right, 0))[:n] == pytest.approx(cells.row_sums(right), abs=1e-9)


@given(st.integers(6, 25), st.integers(6, 25), scales, st.booleans(), st.booleans(), st.integers(0, 10**6))
def test_wanted_sums_are_found(n: int, m: int, scale: float, loops: bool, symmetric: bool, seed: int) -> None:
    """Sums of a matrix of this form are met nearly, and no cell is above 1. Would catch a matrix without diagonal that
    is short of what would stand there, steps that go past what is wanted, and full rows that cannot be reached.
    """
    rng = np.random.default_rng(seed)
    size = (n, n) if symmetric or not loops else (n, m)
    wanted = written(drawn(rng, *size, scale, loops=loops, symmetric=symmetric))
    total = wanted.sum()
    if total < 1:
        return
    found = Capped.of(wanted.sum(axis=1), wanted.sum(axis=0), loops=loops, symmetric=symmetric)
    matrix = written(found)
    assert np.abs(matrix.sum(axis=1) - wanted.sum(axis=1)).sum() <= NEAR * total
    assert np.abs(matrix.sum(axis=0) - wanted.sum(axis=0)).sum() <= NEAR * total
    assert 0 <= matrix.min() <= matrix.max() <= 1
    if symmetric:
        assert matrix == pytest.approx(matrix.T, abs=1e-12)


def test_a_tail_is_found() -> None:
    """Thousands of nodes with a few hubs that reach most of the others. Would catch a search that gives up where many
    cells are capped.
    """
    rng = np.random.default_rng(5)
    factors = np.minimum(rng.pareto(1.1, 3000) + 1, 2000) / 60
    for symmetric in (True, False):
        wanted = Capped(factors, factors if symmetric else rng.permutation(factors), False)
        ones = np.ones(3000)
        rows, columns = wanted.row_sums(ones), wanted.flipped().row_sums(ones)
        found = Capped.of(rows, columns, loops=False, symmetric=symmetric)
        assert not found.capless
        assert np.abs(found.row_sums(ones) - rows).sum() <= 2e-4 * rows.sum()
        assert np.abs(found.flipped().row_sums(ones) - columns).sum() <= 2e-4 * rows.sum()


def test_full_empty_and_too_large() -> None:
    """Would catch a full matrix that is expected not to be, an empty one that divides by zero, and sums beyond the
    number of cells.
    """
    for loops in (True, False):
        most = 8.0 if loops else 7.0
        full = written(Capped.of(np.full(8, most), np.full(8, most), loops=loops, symmetric=True))
        assert full.sum() == pytest.approx(8 * most, rel=1e-3)
        none = written(Capped.of(np.zeros(8), np.zeros(8), loops=loops, symmetric=False))
        assert none.sum() == pytest.approx(0, abs=1e-6)
        beyond = written(Capped.of(np.full(8, 20.0), np.full(8, 20.0), loops=loops, symmetric=False))
        assert beyond.max() <= 1
        assert beyond.sum() == pytest.approx(8 * most, rel=1e-3)


def test_totals_that_differ_are_met_halfway() -> None:
    """Rows and columns that were measured apart have no common total. Would catch one side that is believed alone."""
    found = written(Capped.of(np.full(10, 2.0), np.full(20, 2.0), loops=True, symmetric=False))
    assert found.sum() == pytest.approx(30)
    assert found == pytest.approx(np.full((10, 20), 30 / 200))
