"""Counts of the nodes of trees, against least squares by linear algebra over all cells of small tables."""

from __future__ import annotations

import itertools
import math
from decimal import Decimal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.estimation.tables.local_fit import LocalFits
from app.estimation.tables.residuals import Residuals, Unbiased
from app.measurements.noise import Noise
from app.measurements.pieces import Counts
from app.measurements.strategies.tables import Part, TableStrategy
from app.spaces.partition import Marginal, Partition
from app.spaces.questions import Nested
from app.spaces.tensor import FloatArray

pytestmark = pytest.mark.unit


@st.composite
def trees(draw: st.DrawFn) -> list[Partition]:
    """Levels from coarse to fine, the last one single values: each divides some cells of the one before."""
    size = draw(st.integers(3, 9))
    levels = [np.zeros(size, np.int64)]
    for _ in range(draw(st.integers(1, 3))):
        levels.append(levels[-1] * size + np.array(draw(st.lists(st.integers(0, 2), min_size=size, max_size=size))))
    parts = [*(Partition.of(each) for each in levels), Partition.singles(size)]
    kept = [p for p, finer in itertools.pairwise(parts) if 1 < p.cells < finer.cells]
    return [*kept, parts[-1]]


@st.composite
def worlds(draw: st.DrawFn) -> tuple[tuple[int, ...], Nested, list[Counts], float | None]:
    """A table of two attributes, a question of all nodes, what was measured, and the total where it is public."""
    levels = draw(trees())
    sizes = (levels[-1].size, draw(st.integers(2, 3)))
    beside = draw(st.booleans())
    nodes = np.array([(k, cell) for k, level in enumerate(levels) for cell in range(level.cells)])
    rest: dict[int, Partition | None] = {1: None} if beside else {}
    question = Nested(Marginal.of(sizes, {0: None, **rest}), 0, tuple(levels), nodes)
    possible = [Marginal.of(sizes, {0: level, **other}) for level in levels for other in ({}, {1: None})]
    possible += [Marginal.of(sizes, {}), Marginal.of(sizes, {1: None})]
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    made = [
        Counts(marginal, Noise("gaussian", Decimal(draw(st.integers(2, 9))), 0), rng.integers(-9, 99, marginal.shape))
        for marginal in draw(st.lists(st.sampled_from(possible), min_size=1, max_size=5))
    ]
    return sizes, question, made, draw(st.sampled_from([None, 60.0]))


def indicators(sizes: tuple[int, ...], marginal: Marginal) -> FloatArray:
    """A row for each cell of a marginal, a column for each cell of the table."""
    rows = np.zeros((marginal.cells, math.prod(sizes)))
    for column, place in enumerate(np.ndindex(*sizes)):
        cell = [int(marginal.partition(k).labels[place[a]]) for k, a in enumerate(marginal.attributes)]
        rows[int(np.ravel_multi_index(cell, marginal.shape)) if cell else 0, column] = 1
    return rows


def asked(sizes: tuple[int, ...], question: Nested) -> FloatArray:
    """A row for each answer."""
    cells = [indicators(sizes, part.marginal).reshape(*part.shape, -1) for part in question.parts]
    return np.array([cells[level][cell] for level, cell in question.nodes]).reshape(math.prod(question.shape), -1)


def by_linear_algebra(sizes: tuple[int, ...], question: Nested, made: list[Counts], total: float | None) -> Unbiased:
    """Generalised least squares over all cells; NaN where a row is no combination of what was measured."""
    rows = [indicators(sizes, m.marginal) / math.sqrt(m.variance) for m in made]
    values = [m.values.reshape(-1) / math.sqrt(m.variance) for m in made]
    weights, cells = asked(sizes, question), math.prod(sizes)
    free, centre = np.eye(cells), np.zeros(cells)
    if total is not None:
        # Counts of this sum: a point among them, and the directions along them.
        centre = np.full(cells, total / cells)
        free = np.linalg.svd(np.ones((1, cells)))[2][1:].T
    design, seen = np.vstack(rows) @ free, np.concatenate(values) - np.vstack(rows) @ centre
    inverse = np.linalg.pinv(design.T @ design, rcond=1e-10)
    along = weights @ free
    told = np.abs(along @ inverse @ design.T @ design - along).max(axis=1) < 1e-6
    found = weights @ centre + along @ inverse @ design.T @ seen
    variances = np.einsum("ij,jk,ik->i", along, inverse, along)
    shape = question.shape
    return Unbiased(np.where(told, found, np.nan).reshape(shape), np.where(told, variances, np.nan).reshape(shape))


def known(sizes: tuple[int, ...], made: list[Counts], total: float | None) -> Residuals:
    residuals = Residuals(sizes, total)
    for counts in made:
        residuals.add(counts)
    return residuals


@settings(deadline=None)
@given(worlds())
def test_all_nodes_are_what_least_squares_makes_of_all_measurements(
    world: tuple[tuple[int, ...], Nested, list[Counts], float | None],
) -> None:
    """Catches a pass that forgets the parent, or a leaf's own measurement, and variances that are of another estimate.
    With a second attribute told apart, marginals without it would say something more; nothing is claimed of these."""
    sizes, question, made, total = world
    if 1 in question.marginal.attributes:
        made, total = [m for m in made if 1 in m.marginal.attributes], None
    if not made:
        return
    expected, found = by_linear_algebra(sizes, question, made, total), known(sizes, made, total).unbiased(question)
    np.testing.assert_array_equal(found.estimable, expected.estimable)
    np.testing.assert_allclose(found.values, expected.values, atol=1e-6)
    np.testing.assert_allclose(found.variances, expected.variances, atol=1e-6)


@settings(deadline=None)
@given(worlds())
def test_inner_nodes_are_the_sums_of_leaves_and_no_worse_known_than_by_themselves(
    world: tuple[tuple[int, ...], Nested, list[Counts], float | None],
) -> None:
    """Catches nodes that are each estimated from what tells of them alone."""
    sizes, question, made, total = world
    residuals = known(sizes, made, total)
    found = residuals.unbiased(question)
    assert (found.variances[found.estimable] >= 0).all()
    if not found.estimable.all():
        return
    finest = len(question.levels) - 1
    leaves = found.values[question.nodes[:, 0] == finest]
    sums = question.of(leaves, question.partitions)
    np.testing.assert_allclose(sums, found.values, atol=1e-6)
    if not residuals.public_total:
        for (level, _), variances in zip(question.nodes, found.variances, strict=True):
            for counts in made:
                if counts.marginal == question.along(question.levels[level]):
                    assert (variances <= counts.variance + 1e-9).all()


def test_many_nodes_take_no_longer_than_they_are() -> None:
    """Sixteen thousand leaves in four levels: a matrix of leaves by leaves would take two gigabytes."""
    size = 1 << 14
    levels = tuple(Partition.of(np.arange(size) >> shift) for shift in (11, 7, 3, 0))
    nodes = np.array([(k, cell) for k, level in enumerate(levels) for cell in range(level.cells)])
    question = Nested(Marginal.of((size,), {0: None}), 0, levels, nodes)
    strategy = TableStrategy(tuple(Part(Marginal.of((size,), {0: level})) for level in levels))
    found = Residuals((size,)).variances_after(question, strategy, 4.0)
    assert found.shape == (len(nodes),)
    assert found.max() < 4.0


def test_a_fit_knows_nodes_as_its_cells() -> None:
    """What is expected of nodes where nothing was counted but the total: standard errors of sums of cells, not of
    numbers that were taken for them."""
    levels = (Partition.of(np.array([0, 0, 1, 1])), Partition.singles(4))
    question = Nested(
        Marginal.of((4,), {0: None}), 0, levels, np.array([[0, 0], [1, 0], [1, 1], [0, 1], [1, 2], [1, 3]])
    )
    fit = LocalFits(known((4,), [], 100.0)).fit(question)
    errors = fit.standard_errors(question)
    for place, (level, cell) in enumerate(question.nodes):
        assert errors[place] == fit.standard_errors(question.parts[level])[cell]
    assert fit.standard_error(question) == pytest.approx(math.sqrt(float(np.mean(errors**2))))


def test_levels_that_are_not_nested_are_refused() -> None:
    """Catches a tree of which a node has two parents."""
    across = Partition.of(np.array([0, 1, 1, 0]))
    half = Partition.of(np.array([0, 0, 1, 1]))
    for levels in ((across, half, Partition.singles(4)), (half,), (Partition.singles(4), half)):
        with pytest.raises(ValueError, match="refines"):
            Nested(Marginal.of((4,), {0: None}), 0, levels, np.array([[0, 0]]))
