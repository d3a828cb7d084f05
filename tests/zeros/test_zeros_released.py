"""Fits, publications and synthetic tables of a table with structural zeros."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from app.estimation.tables.dense_fit import whole_table
from app.estimation.tables.local_fit import LocalFits
from app.measurements.noise import Noise
from app.measurements.pieces import Counts
from app.releases import table_results
from app.releases.publication import published
from app.releases.table_results import nearest, synthetic
from app.releases.workloads import Marginals
from app.spaces.partition import Marginal, Partition
from app.spaces.questions import Cells
from tests.zeros.tables import SIZES, SPEC, counted, measured, people, zeros_of

pytestmark = pytest.mark.unit

ZEROS, CODES = zeros_of(SPEC), people()
TABLES = [(0, 1), (2, 3), (0, 2), (0, 1, 4), (1, 2, 3), (0,), (3,)]


def possible(axes: tuple[int, ...]) -> np.ndarray:
    """Which cells of a marginal can be, by the words of the declaration."""
    found = np.ones([SIZES[axis] for axis in axes], bool)
    for cell in np.ndindex(found.shape):
        own = dict(zip(axes, cell, strict=True))
        if {0, 1} <= own.keys() and own[0] < 2 and own[1] > 0:
            found[cell] = False
        if {2, 3} <= own.keys() and own[3] // 3 != own[2]:
            found[cell] = False
    return found


def cells(axes: tuple[int, ...]) -> Cells:
    return Cells(Marginal.of(SIZES, dict.fromkeys(axes)))


@pytest.mark.parametrize("axes", TABLES)
def test_fits_have_no_mass_there(axes: tuple[int, ...]) -> None:
    """Would catch mass on what cannot be, a fit that lost records with it, one that did not converge, and values that
    are said to be unknown there."""
    residuals = measured(CODES, ZEROS)
    fits = LocalFits(residuals)
    for fit in (fits.fit(cells(axes)), fits.product(cells(axes))):
        values = fit.values(cells(axes))
        assert (values[~possible(axes)] == 0).all()
        assert values.min() >= 0
        assert values.sum() == pytest.approx(float(residuals.total.values))
        assert np.isfinite(fit.standard_errors(cells(axes))).all()
        assert fit.converged
    known = residuals.unbiased(cells(axes))
    assert (known.values[~possible(axes)] == 0).all()
    assert (known.variances[~possible(axes)] == 0).all()
    reaches = residuals.reaches(cells(axes), known, 0.95)
    assert (reaches[~possible(axes)] == 0).all()
    assert not (reaches[possible(axes)] == 0).any()


def test_fits_of_coarse_cells_know_what_is_in_them() -> None:
    """The young and the others by marital state, of one-way counts alone: the young are single. Would catch a fit that
    takes cells of which a part cannot be as if all could."""
    residuals = measured(CODES, ZEROS).fresh()
    noise = Noise("gaussian", measured(CODES).measurements[0].noise.scale, 0)
    for axis in (0, 1):
        residuals.add(Counts(cells((axis,)).marginal, noise, counted(CODES, (axis,))))
    young = Partition.of(np.arange(10) >= 4)
    question = Cells(Marginal.of(SIZES, {0: young, 1: None}))
    found = LocalFits(residuals).fit(question).values(question)
    exact = counted(CODES, (0, 1))
    # Half of those below 40 are below 20 here, and no product of one-way counts says that they are single.
    alone = exact[:2].sum() + (exact[2:4].sum() * (exact[2:, 0].sum() / exact[2:].sum()))
    assert found[0, 0] == pytest.approx(alone, rel=0.1)
    product = exact[:4].sum() * exact[:, 0].sum() / exact.sum()
    assert abs(found[0, 0] - alone) < 0.2 * abs(product - alone)


def test_fits_of_whole_tables_have_no_mass_there() -> None:
    """Of a table all cells of which were measured: would catch what the fit by cells leaves there."""
    exact = np.zeros((10, 3, 4), np.int64)
    np.add.at(exact, tuple(CODES[:, :3].T), 1)
    zeros = ZEROS.over((0, 1, 2), [Partition.singles(n) for n in exact.shape])
    residuals = measured(CODES).__class__(exact.shape, zeros=zeros)
    everything = Marginal.of(exact.shape, dict.fromkeys(range(3)))
    noise = np.rint(np.random.default_rng(1).normal(0, 8, exact.shape)).astype(np.int64)
    residuals.add(Counts(everything, measured(CODES).measurements[0].noise, exact + noise))
    found = whole_table(residuals, LocalFits(residuals).shares)
    assert found is not None
    values = found.values(Cells(everything))
    assert (values[:2, 1:] == 0).all()
    assert values.sum() == pytest.approx(float(residuals.total.values))
    assert found.converged


@pytest.mark.parametrize("most", [1 << 14, 1])
@pytest.mark.parametrize("seed", [0, 1])
def test_publications_keep_zeros_and_add_up(monkeypatch: pytest.MonkeyPatch, most: int, seed: int) -> None:
    """From a fit of all cells, and attribute by attribute: would catch a record that cannot be, in any table or in the
    records themselves, an interval of such a cell that is not 0 to 0, and tables that no longer agree."""
    monkeypatch.setattr(table_results, "MOST_FITTED", most)
    workload = Marginals(tuple(cells(axes).marginal for axes in TABLES))
    made = published(workload, measured(CODES, ZEROS, seed=seed), seed, lambda part: None)
    tables = {}
    for axes, answers in zip(TABLES, made.answers, strict=True):
        found, none = answers.estimates, ~possible(axes)
        for numbers in (found.values, found.lows, found.highs, found.standard_errors):
            assert (numbers[none] == 0).all()
        assert (found.highs[~none] > 0).all()
        tables[axes] = found.values
    for one, other in itertools.combinations(TABLES, 2):
        common = [axis for axis in one if axis in other]
        sums = [tables[axes].sum(axis=tuple(k for k, a in enumerate(axes) if a not in common)) for axes in (one, other)]
        assert np.array_equal(*sums)
    codes = made.records.codes
    assert not ZEROS.violated(codes).any()
    assert not (codes[:, 3] // 3 != codes[:, 2]).any()


@pytest.mark.parametrize("kind", ["whole", "local", "nearest"])
def test_synthetic_tables_keep_zeros(kind: str) -> None:
    """Records of one fit of all cells (pairs of few attributes), of many local fits, and answers of the nearest table:
    would catch mass on what cannot be in each."""
    pairs = list(itertools.combinations((0, 1, 2), 2) if kind != "local" else itertools.combinations(range(5), 2))
    workload = Marginals(tuple(cells(axes).marginal for axes in pairs))
    residuals = measured(CODES, ZEROS)
    if kind == "nearest":
        found, converged = nearest(workload, residuals, [], lambda part: None)
        assert converged
    else:
        made = synthetic(workload, residuals, [], None, 3, lambda part: None)
        found = made.answers
        own = made.records
        assert not ZEROS.over(own.axes, own.cells).violated(own.codes).any()
        assert len(own.codes) == round(float(residuals.total.values))
    for axes, answers in zip(pairs, found, strict=True):
        assert (answers.estimates.values[~possible(axes)] == 0).all()
        assert answers.estimates.values.sum() > 0


def test_tables_are_nearer_where_zeros_are_declared() -> None:
    """The same noise with and without the declaration: would catch zeros that cost accuracy."""
    squares = []
    for zeros in (ZEROS, zeros_of(SPEC | {"zeros": None})):
        off = 0.0
        for seed in range(3):
            residuals = measured(CODES, zeros, seed=seed)
            fits = LocalFits(residuals)
            for axes in TABLES[:5]:
                off += float(np.square(fits.fit(cells(axes)).values(cells(axes)) - counted(CODES, axes)).mean())
        squares.append(off)
    assert squares[0] < 0.85 * squares[1]
