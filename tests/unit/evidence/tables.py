"""What the tests of evidence share: marginals as explicit matrices over all cells of a small table, and releases."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from decimal import Decimal

import numpy as np

from app.evidence.measurements import Marginal, Measurement, Noise, NoiseKind, Partition
from app.evidence.questions import Cells, Local, Product, Question

#: Fine enough that rounding to the grid shows in no comparison here.
BITS = 40


def matrix(sizes: Sequence[int], marginal: Marginal) -> np.ndarray:
    """The 0/1 matrix that takes all counts, row by row, to the cells of a marginal. A plain loop."""
    rows = np.zeros((marginal.cells, math.prod(sizes)))
    for column, cell in enumerate(np.ndindex(*sizes)):
        place = tuple(int(marginal.partition(k).labels[cell[a]]) for k, a in enumerate(marginal.attributes))
        rows[int(np.ravel_multi_index(place, marginal.shape)) if place else 0, column] = 1
    return rows


def weights(sizes: Sequence[int], question: Question) -> np.ndarray:
    """The weights of a question on all cells: a row for each of its answers. A plain loop."""
    if isinstance(question, Cells):
        return matrix(sizes, question.marginal)
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


def measured(marginal: Marginal, sigma: float, values: np.ndarray, kind: NoiseKind = "gaussian") -> Measurement:
    """A measurement with given values (counts)."""
    units = np.rint(np.ldexp(np.asarray(values, dtype=np.float64).reshape(marginal.shape), BITS)).astype(np.int64)
    return Measurement(marginal, Noise(kind, Decimal(repr(sigma)), BITS), units)


def released(
    rng: np.random.Generator, counts: np.ndarray, cells: Mapping[int, Partition | None], scale: float, kind: NoiseKind
) -> Measurement:
    """A marginal of a table of counts with noise from a seeded generator; continuous, rounded to a fine grid."""
    marginal = Marginal.of(counts.shape, cells)
    exact = matrix(counts.shape, marginal) @ counts.reshape(-1)
    noise = rng.laplace(0, scale, exact.shape) if kind == "laplace" else rng.normal(0, scale, exact.shape)
    return measured(marginal, scale, exact + noise, kind)
