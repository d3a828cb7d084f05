"""The expected cells of a graph or a matrix from noisy degrees, and how far off that may be.

Degrees tell the sums of rows and columns; a cell is expected from those of its row and column
(:mod:`.capped`). Two things are unknown then: the degrees themselves, of which a posterior is known
(:mod:`.shrinkage`), and what cells differ by from a product of degrees, of which nothing is known but that it is about
as large as chance makes it, or some times as large where there are communities.

Everything is told of cells from 0 to 1: those of a matrix are moved and scaled by its bounds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from app.estimation.graphs.capped import Capped
from app.estimation.graphs.cells import Sums
from app.estimation.graphs.shrinkage import posterior
from app.measurements.strategies.edges import CellKind
from app.spaces.cuts import CutQuestion
from app.spaces.lazy import lazy
from app.spaces.tensor import Axis, FloatArray


@dataclass(frozen=True, eq=False)
class SideModel:
    """The known sums of the rows, or of the columns.

    Attributes:
        sums: expected.
        weights: of nodes, by whose products cells are expected to vary beside what degrees tell.
        noise: variance of each sum by what the released one differs from the true one.
        shape: variance by what the posterior adds: where nodes of one group differ from what is usual, these errors
            are not independent.
    """

    sums: FloatArray
    weights: FloatArray
    noise: FloatArray
    shape: FloatArray

    @lazy
    def weightings(self) -> FloatArray:
        """The three, one below the other."""
        made: FloatArray = np.stack([self.weights, self.noise, self.shape])
        return made

    @lazy
    def totals(self) -> FloatArray:
        """Their sums; never zero."""
        made: FloatArray = np.maximum(self.weightings.sum(axis=1), 1e-12)
        return made


@dataclass(frozen=True, eq=False)
class Expectation:
    """Expected cells, and how sums of them are expected to be off.

    Attributes:
        kind: of the cells.
        cells: expected.
        left, right: of rows and columns; the same where cells are pairs.
        total_variance: of the sum of all cells (of the whole matrix).
        certain: whether the released sums tell so much that the posterior hardly moves them.
    """

    kind: CellKind
    cells: Capped
    left: SideModel
    right: SideModel
    total_variance: float
    certain: bool

    @lazy
    def total(self) -> float:
        """The sum of all expected cells of the matrix."""
        return max(float(self.left.sums.sum()), 1e-9)

    def value(self, question: CutQuestion) -> float:
        """The prediction of a question."""
        return sum(c * self.cells.sum(a.places, a.own, b.places, b.own) for c, a, b in question.terms)

    def of_rows(self, side: Axis) -> float:
        """The part of all cells that lies in a side's rows."""
        return float(side.summed(self.left.sums)) / self.total

    def of_columns(self, side: Axis) -> float:
        """The part of all cells that lies in a side's columns."""
        return float(side.summed(self.right.sums)) / self.total


#: A side whose sums keep this part of how they vary is told.
_TOLD = 0.8
#: Weights of nodes are never less than this part of their mean: of a node without cells something may be learnt too.
_LEAST_WEIGHT = 1e-3


def expectation(kind: CellKind, shape: tuple[int, int], degrees: Sequence[Sums]) -> Expectation:
    """The expectation of cells from 0 to 1.

    Args:
        kind: of the cells.
        shape: rows and columns.
        degrees: released sums of rows and of columns, and the variance of each; where cells are pairs both are the
            same. None have to be there: then half of all cells are expected.
    """
    rows, columns = shape
    loops = kind == "all"
    if not degrees:
        return _nothing(kind, shape)
    first, second, of_rows, of_columns = averaged(degrees)
    pairs = kind == "pairs"
    # The totals of rows and columns are the same number, measured twice; of pairs there is one.
    by_rows, by_columns = 1 / (rows * of_rows), 0.0 if pairs else 1 / (columns * of_columns)
    total = (float(first.sum()) * by_rows + float(second.sum()) * by_columns) / (by_rows + by_columns)
    most = rows * columns - (0 if loops else rows)
    total = min(max(total, 1.0), float(most))
    sides, slopes = [], []
    known = ((first, of_rows, columns), (second, of_columns, rows))
    for noisy, variance, across in known[:1] if pairs else known:
        found = posterior(noisy, variance, float(across - (not loops)))
        sums = found.means * (total / max(float(found.means.sum()), 1e-9))
        slopes.append(float(found.slopes.mean()))
        sides.append((sums, variance * found.slopes**2, variance * found.slopes * (1 - found.slopes)))
    if pairs:
        sides *= 2
    cells = Capped.of(sides[0][0], sides[1][0], loops=loops, symmetric=pairs)
    models = []
    for (_, noise, extra), part in zip(sides, (cells, cells.flipped()), strict=True):
        sums = part.row_sums(np.ones(len(part.columns)))
        # What is left to chance where some cells are capped: a cell that is sure to be there varies by nothing.
        chance = sums - _squares(part)
        weights = np.maximum(chance, 0) + _LEAST_WEIGHT * max(float(chance.mean()), 1e-9)
        models.append((sums, weights, noise, extra))
    scale = math.sqrt(max(float(models[0][1].sum()), 1e-9))
    left, right = (SideModel(sums, weights / scale, noise, extra) for sums, weights, noise, extra in models)
    return Expectation(kind, cells, left, right, 1 / (by_rows + by_columns), min(slopes) >= _TOLD)


def averaged(sums: Sequence[Sums]) -> Sums:
    """Several measurements of the same sums as one, each weighed by its precision."""
    rows, row_variance = _averaged([(each.rows, each.row_variance) for each in sums])
    columns, column_variance = _averaged([(each.columns, each.column_variance) for each in sums])
    return Sums(rows, columns, row_variance, column_variance)


def _averaged(measured: Sequence[tuple[FloatArray, float]]) -> tuple[FloatArray, float]:
    precision = sum(1 / variance for _, variance in measured)
    values = np.zeros(len(measured[0][0]))
    for own, variance in measured:
        values += own / (variance * precision)
    return values, 1 / precision


def _squares(cells: Capped) -> FloatArray:
    """For each row the sum of the squares of its expected cells."""
    return Capped(cells.rows**2, cells.columns**2, cells.loops).row_sums(np.ones(len(cells.columns)))


def _nothing(kind: CellKind, shape: tuple[int, int]) -> Expectation:
    rows, columns = shape
    half = Capped(np.full(rows, 0.5), np.ones(columns), kind == "all")
    models = []
    for part in (half, half.flipped()):
        sums = part.row_sums(np.ones(len(part.columns)))
        # Anything from 0 to 1 in each cell, for all that is known.
        models.append(SideModel(sums, sums / math.sqrt(2 * sums.sum()), np.zeros(len(sums)), sums**2 / 3))
    return Expectation(kind, half, models[0], models[1], (rows * columns) ** 2 / 12, certain=False)
