"""What the tests of evidence share: marginals as explicit matrices over all cells of a small table, and releases."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from decimal import Decimal

import numpy as np
from scipy.linalg import block_diag

from app.measurements.noise import Noise, NoiseKind
from app.measurements.pieces import Counts
from app.measurements.record import Measurement
from app.measurements.strategies.tables import TableStrategy
from app.spaces.partition import Marginal, Partition
from app.spaces.questions import Cells, Local, Product, Question, WeightedCells

#: Fine enough that rounding to the grid shows in no comparison here.
BITS = 40


def measurement_of(counts: Counts) -> Measurement[TableStrategy]:
    """The measurement that counts were by themselves."""
    return Measurement(TableStrategy.of(counts.marginal), counts.noise, counts.units.reshape(-1))


def cell_of_each(sizes: Sequence[int], marginal: Marginal) -> list[int]:
    """The cell of a marginal that each count is part of, of all counts row by row. A plain loop."""
    labels = [marginal.partition(k).labels.tolist() for k in range(len(marginal.attributes))]
    told = list(zip(labels, marginal.attributes, marginal.shape, strict=True))
    found = []
    for record in itertools.product(*map(range, sizes)):
        cell = 0
        for own, attribute, size in told:
            cell = cell * size + own[record[attribute]]
        found.append(cell)
    return found


def matrix(sizes: Sequence[int], marginal: Marginal) -> np.ndarray:
    """The 0/1 matrix that takes all counts, row by row, to the cells of a marginal."""
    rows = np.zeros((marginal.cells, math.prod(sizes)))
    rows[cell_of_each(sizes, marginal), np.arange(math.prod(sizes))] = 1
    return rows


def summed(counts: np.ndarray, marginal: Marginal) -> np.ndarray:
    """The cells of a marginal of all counts, as the matrix tells them; of many counts it would take gigabytes."""
    cells = cell_of_each(counts.shape, marginal)
    return np.bincount(cells, weights=counts.reshape(-1), minlength=marginal.cells)


def weights(sizes: Sequence[int], question: Question) -> np.ndarray:
    """The weights of a question on all cells: a row for each of its answers. A plain loop."""
    if isinstance(question, Cells):
        return matrix(sizes, question.marginal)
    if isinstance(question, WeightedCells):
        along = np.array([question.weights[cell[question.axis]] for cell in np.ndindex(*sizes)])
        return matrix(sizes, question.marginal) * along
    row = np.zeros(math.prod(sizes))
    for column, cell in enumerate(np.ndindex(*sizes)):
        if isinstance(question, Product):
            row[column] = question.scale * math.prod(
                float(v[cell[a]]) for a, v in zip(question.attributes, question.vectors, strict=True)
            )
        else:
            assert isinstance(question, Local)
            row[column] = question.weights[tuple(cell[a] for a in question.attributes)]
    return row[None]


def measured(marginal: Marginal, sigma: float, values: np.ndarray, kind: NoiseKind = "gaussian") -> Counts:
    """A measurement with given values (counts)."""
    units = np.rint(np.ldexp(np.asarray(values, dtype=np.float64).reshape(marginal.shape), BITS)).astype(np.int64)
    return Counts(marginal, Noise(kind, Decimal(repr(sigma)), BITS), units)


def released(
    rng: np.random.Generator, counts: np.ndarray, cells: Mapping[int, Partition | None], scale: float, kind: NoiseKind
) -> Counts:
    """A marginal of a table of counts with noise from a seeded generator; continuous, rounded to a fine grid."""
    marginal = Marginal.of(counts.shape, cells)
    exact = summed(counts, marginal)
    noise = rng.laplace(0, scale, exact.shape) if kind == "laplace" else rng.normal(0, scale, exact.shape)
    return measured(marginal, scale, exact + noise, kind)


def least_squares(
    sizes: tuple[int, ...], measurements: list[Counts], total: float | None, row: np.ndarray
) -> tuple[np.ndarray, float] | None:
    """Generalised least squares by the pseudo-inverse of a dense matrix of all cells.

    Returns the coefficients of the released values (and the total, last) in the best linear unbiased estimate, and its
    variance; None where the rows do not determine it.
    """
    cells = math.prod(sizes)
    stack = np.concatenate([matrix(sizes, m.marginal) for m in measurements] or [np.zeros((0, cells))])
    variances = np.concatenate([np.full(m.marginal.cells, m.variance) for m in measurements] or [np.zeros(0)])
    start, free = np.zeros(cells), np.eye(cells)
    if total is not None:
        # x = 1/cells (total 1) + free z, where free spans what sums to zero.
        start = np.full(cells, 1 / cells)
        free = np.linalg.svd(np.ones((1, cells)))[2][1:].T
    scaled, aim = np.round(stack @ free, 12) / np.sqrt(variances)[:, None], np.round(row @ free, 12)
    pseudo = np.linalg.pinv(scaled, rcond=1e-10)
    if np.abs(aim @ pseudo @ scaled - aim).max(initial=0.0) > 1e-8:
        return None
    on = (aim @ pseudo) / np.sqrt(variances)
    return np.append(on, row @ start - on @ stack @ start), float(np.sum((aim @ pseudo) ** 2))


def least_variance(
    told: list[tuple[list[int], np.ndarray, np.ndarray]], count: int = 3
) -> tuple[np.ndarray, np.ndarray]:
    """Numbers and their covariances, NaN where nothing is told of one, by the unbiased weights of least variance:
    w'Vw is least where Vw + X l = 0 and X'w is the number asked for. Sources are independent: the places of the numbers
    that each tells, what it says, and the covariances of that."""
    places = [k for own, _, _ in told for k in own]
    known = sorted(set(places))
    values = np.concatenate([y for _, y, _ in told])
    noise = block_diag(*[v for _, _, v in told if len(v)]) if places else np.zeros((0, 0))
    # Numbers of like size, as the system is solved by singular values.
    scale = 4.0 ** np.arange(count)
    scaled = noise / np.outer(scale[places], scale[places])
    design = np.array(places)[:, None] == np.array(known)[None, :]
    zeros = np.zeros((len(known), len(known)))
    system = np.block([[scaled, design.astype(float)], [design.T.astype(float), zeros]])
    goal = np.vstack([np.zeros((len(places), len(known))), np.eye(len(known))])
    on = np.linalg.lstsq(system, goal, rcond=1e-11)[0][: len(places)] if known else np.zeros((0, 0))
    mean, covariance = np.full(count, np.nan), np.full((count, count), np.nan)
    mean[known] = on.T @ (values / scale[places]) * scale[known]
    covariance[np.ix_(known, known)] = on.T @ scaled @ on * np.outer(scale[known], scale[known])
    return mean, covariance


def expected(
    sizes: tuple[int, ...],
    closed: list[Counts],
    apart: list[Counts],
    total: float | None,
    row: np.ndarray,
) -> tuple[float, float]:
    """Least squares over the first list, averaged by precision with each of the second that determines the answer."""
    told = []
    found = least_squares(sizes, closed, total, row)
    if found is not None:
        values = np.concatenate([*(m.values.reshape(-1) for m in closed), [total or 0.0]])
        told.append((float(found[0] @ values), found[1]))
        if found[1] < 1e-12:
            return told[0]
    for m in apart:
        cells = matrix(sizes, m.marginal)
        on = np.linalg.lstsq(cells.T, row, rcond=None)[0]
        if np.abs(on @ cells - row).max() < 1e-9:
            told.append((float(on @ m.values.reshape(-1)), m.variance * float(on @ on)))
    if not told:
        return math.nan, math.nan
    whole = sum(1 / v for _, v in told)
    return sum(y / v for y, v in told) / whole, 1 / whole
