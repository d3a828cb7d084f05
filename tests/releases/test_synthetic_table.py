"""Synthetic records: near to what they are made of, nearer than records drawn independently."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable
from decimal import Decimal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.estimation.tables.local_fit import LocalFits
from app.estimation.tables.residuals import Residuals
from app.measurements.noise import Noise
from app.measurements.pieces import Counts
from app.releases.synthetic_table import from_marginals, listed, rounded
from app.spaces.partition import Marginal
from app.spaces.questions import Cells
from app.spaces.tensor import FloatArray, IntArray
from tests.kit.patience import patience

pytestmark = pytest.mark.unit


def marginal_error(found: FloatArray | IntArray, wanted: FloatArray, order: int) -> float:
    """Root mean square over the cells of all marginals of an order."""
    squares = []
    for outside in itertools.combinations(range(wanted.ndim), wanted.ndim - order):
        squares.append(np.square(found.sum(axis=outside) - wanted.sum(axis=outside)).reshape(-1))
    return math.sqrt(float(np.concatenate(squares).mean()))


@pytest.mark.slow
@given(st.integers(0, 10_000), st.integers(0, 60), st.integers(1, 3))
@settings(max_examples=40, deadline=None)
def test_every_cell_is_rounded_up_or_down(seed: int, records: int, order: int) -> None:
    """Would catch a move into a cell that was rounded up already, and records lost or added."""
    rng = np.random.default_rng(seed)
    counts = rng.dirichlet(np.full(24, 0.3)).reshape(2, 3, 4) * 7
    found = rounded(counts, records, rng, order=order)
    shares = counts * (records / counts.sum())
    assert found.sum() == records
    assert (found >= np.floor(shares - 1e-9)).all()
    assert (found <= np.ceil(shares + 1e-9)).all()


def test_whole_counts_stay() -> None:
    """Would catch whole counts that lose a record to the rounding of their sum."""
    counts = np.random.default_rng(1).poisson(3.0, (3, 4, 5)).astype(float)
    assert (rounded(counts, int(counts.sum()), np.random.default_rng(2)) == counts).all()


def test_marginals_are_far_nearer_than_of_records_drawn_independently() -> None:
    """A table of 5,040 cells and 2,000 records. Would catch moves that lead away, or none at all: a systematic draw
    alone misses by half of what independent records do."""
    rng = np.random.default_rng(3)
    shape = (4, 6, 5, 3, 7, 2)
    counts = np.exp(rng.normal(0, 1.5, shape))
    counts *= 2000 / counts.sum()
    drawn = rng.multinomial(2000, counts.reshape(-1) / counts.sum()).reshape(shape)
    found = rounded(counts, 2000, np.random.default_rng(4))
    assert marginal_error(found, counts, 3) < 0.25 * marginal_error(drawn, counts, 3)
    assert marginal_error(found, counts, 1) < 0.25 * marginal_error(drawn, counts, 1)


def test_the_seed_decides() -> None:
    """Would catch randomness from elsewhere."""
    counts = np.random.default_rng(5).random((4, 5, 6))
    one, other, same = (rounded(counts, 50, np.random.default_rng(s), order=2) for s in (1, 2, 1))
    assert (one == same).all()
    assert (one != other).any()


def test_listed_records_are_the_counts() -> None:
    """Would catch columns in another order."""
    counts = np.random.default_rng(6).poisson(0.7, (2, 3, 4))
    rows = listed(counts, np.random.default_rng(7))
    back = np.zeros_like(counts)
    np.add.at(back, tuple(rows.T), 1)
    assert (back == counts).all()
    assert listed(np.zeros((2, 3), dtype=np.int64), np.random.default_rng(8)).shape == (0, 2)


def test_refusals() -> None:
    """Would catch counts that are no table."""
    for counts, records in ((np.array([-1.0, 2.0]), 1), (np.zeros(3), 1), (np.ones(3), -1)):
        with pytest.raises(ValueError, match="not negative"):
            rounded(counts, records, np.random.default_rng(9))


def measured(rows: IntArray, sizes: tuple[int, ...], chosen: list[tuple[int, ...]], deviation: float) -> LocalFits:
    """Local fits of marginals of these records with Gaussian noise."""
    rng = np.random.default_rng(10)
    residuals = Residuals(sizes)
    for attributes in chosen:
        shape = [sizes[a] for a in attributes]
        cells = np.ravel_multi_index(tuple(rows[:, list(attributes)].T), shape)
        exact = np.bincount(cells, minlength=math.prod(shape)).reshape(shape)
        values = exact + np.rint(rng.normal(0, deviation, shape)).astype(np.int64)
        noise = Noise("gaussian", Decimal(str(deviation)), 0)
        residuals.add(Counts(Marginal.of(sizes, dict.fromkeys(attributes)), noise, values))
    return LocalFits(residuals)


def marginals(fits: LocalFits, sizes: tuple[int, ...]) -> Callable[[tuple[int, ...]], FloatArray]:
    """The fitted counts of each marginal."""

    def fitted(attributes: tuple[int, ...]) -> FloatArray:
        question = Cells(Marginal.of(sizes, dict.fromkeys(attributes)))
        return fits.best(question).values(question)

    return fitted


def chain(count: int, size: int, records: int) -> IntArray:
    """Records of attributes of which each is most often what the one before it is."""
    rng = np.random.default_rng(11)
    rows = rng.integers(0, size, (records, count))
    for a in range(1, count):
        rows[:, a] = np.where(rng.random(records) < 0.8, rows[:, a - 1], rows[:, a])
    return rows.astype(np.int64)


def test_records_of_local_fits_have_their_pairs() -> None:
    """Would catch parents in another order than the axes of the fit, values given by the wrong attribute, and records
    whose attributes are independent of one another."""
    rows = chain(6, 3, 4000)
    sizes = (3,) * 6
    pairs = [(a, a + 1) for a in range(5)]
    fits = measured(rows, sizes, pairs, 2.0)
    found = from_marginals(marginals(fits, sizes), sizes, 4000, np.random.default_rng(12))
    assert found.shape == (4000, 6)
    for one, other in pairs:
        exact = np.bincount(rows[:, one] * 3 + rows[:, other], minlength=9)
        made = np.bincount(found[:, one] * 3 + found[:, other], minlength=9)
        # Independent records would be off by about 20; without a relation cells are off by hundreds.
        assert np.abs(made - exact).max() < 20
    assert (from_marginals(marginals(fits, sizes), sizes, 50, np.random.default_rng(1), related=pairs) < 3).all()


@pytest.mark.slow
def test_fifty_attributes_take_seconds() -> None:
    """Would catch work for each record, or fits of all sets of three attributes."""
    rows = chain(50, 4, 50_000)
    sizes = (4,) * 50
    pairs = [(a, a + 1) for a in range(49)]
    fits = measured(rows, sizes, pairs, 30.0)
    started = time.perf_counter()
    found = from_marginals(marginals(fits, sizes), sizes, 50_000, np.random.default_rng(13), related=pairs)
    assert time.perf_counter() - started < patience(30)
    apart = [float(np.mean(found[:, a] == found[:, a + 1])) for a in range(49)]
    assert apart == pytest.approx([0.85] * 49, abs=0.02)
