"""Linear maps of counts before noise is added: contrasts, and sums with whole weights, one for each row of a matrix.

*Contrasts* are the part of a marginal that varies along every one of its attributes: counts from which along each axis
the mean was taken off, times the number of cells, so that they are whole. What several marginals share is then measured
once. *Rows* are any whole weights on the cells of a marginal: a hierarchy, or what was found best for questions that
are known ahead.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.linalg import LinAlgError, cholesky, eigh, solve_triangular
from scipy.sparse import csr_array, eye_array, kron

from app.spaces.lazy import lazy
from app.spaces.partition import Marginal
from app.spaces.tensor import Array, FloatArray, IntArray

#: Weights of rows take at most so many bits, and there are at most so many rows and weights: squares add up exactly.
MOST_WEIGHT_BITS, MOST_ROWS, MOST_WEIGHTS = 20, 1 << 14, 1 << 20

#: Rows with more than one in so many weights that are not zero are multiplied as a dense matrix.
_DENSE = 32

#: Scaled to ones on the diagonal, a system whose factor has a smaller number there may not tell all cells apart.
_FIRM = 1e-5

#: Directions of a smaller eigenvalue are not told apart.
_TOLD = 1e-10


@dataclass(frozen=True)
class Sensitivity:
    """The sensitivity of values to one record: the sum of the changes, and the sum of their squares."""

    absolute: int
    squared: int


def centred(array: Array) -> Array:
    """Whole counts made to sum to zero along each axis, times the number of cells: along an axis of n cells each number
    is multiplied by n, and the sum of all n taken off. The numbers stay whole.
    """
    for axis in range(array.ndim):
        array = array * array.shape[axis] - array.sum(axis=axis, keepdims=True)
    return array


def contrast_sensitivity(marginal: Marginal) -> Sensitivity:
    """The sensitivity of the contrasts of a marginal to one record.

    Along an axis of n cells a record adds n - 1 to its own cell and takes 1 from each of the n - 1 others: 2(n - 1) in
    absolute values, (n - 1)^2 + (n - 1) = n(n - 1) in squares. A cell's change is the product of those along the axes,
    and so are the sums over all cells. (docs/privacy.md, 9.5)
    """
    shape = marginal.shape
    return Sensitivity(math.prod(2 * (n - 1) for n in shape), math.prod(n * (n - 1) for n in shape))


@dataclass(frozen=True, eq=False)
class Rows:
    """A matrix of whole numbers over cells, row by row, zeros left out.

    Attributes:
        cells: number of columns, below 2^15.
        starts: where the weights of each row begin, and where the last one ends.
        columns: for each weight its cell, ascending in a row.
        weights: none of them zero, in absolute value below 2^20.

    Raises:
        ValueError: when it is not of this form.
    """

    cells: int
    starts: IntArray
    columns: IntArray
    weights: IntArray

    def __post_init__(self) -> None:
        for name in ("starts", "columns", "weights"):
            array = np.array(getattr(self, name), dtype=np.int64)
            array.setflags(write=False)
            object.__setattr__(self, name, array)
        starts, columns, weights = self.starts, self.columns, self.weights
        if not (starts.ndim == columns.ndim == weights.ndim == 1 and 1 < len(starts) <= MOST_ROWS + 1):
            raise ValueError(f"rows are from 1 to {MOST_ROWS}")
        if starts[0] != 0 or starts[-1] != len(columns) or bool((np.diff(starts) <= 0).any()):
            raise ValueError("every row has weights, one row after another")
        if len(columns) != len(weights) or len(weights) > MOST_WEIGHTS:
            raise ValueError(f"rows have a cell for each of at most {MOST_WEIGHTS} weights")
        within = np.ones(len(columns), dtype=bool)
        within[starts[:-1]] = False
        if not 0 < self.cells < 1 << 15:
            raise ValueError("rows are over fewer than 2^15 cells")
        if columns.min() < 0 or columns.max() >= self.cells or bool((np.diff(columns)[within[1:]] <= 0).any()):
            raise ValueError("the cells of a row ascend below their number")
        if bool((weights == 0).any()) or int(np.abs(weights).max()) >= 1 << MOST_WEIGHT_BITS:
            raise ValueError(f"weights of rows are whole, not zero, of at most {MOST_WEIGHT_BITS} bits")

    @classmethod
    def of(cls, matrix: Array | csr_array) -> Rows:
        """The rows of a matrix of whole numbers, those without weights left out.

        Raises:
            ValueError: when they are no rows.
        """
        sparse = csr_array(matrix).astype(np.int64)
        sparse.sum_duplicates()
        sparse.eliminate_zeros()
        lengths = np.diff(sparse.indptr)
        starts = np.concatenate([[0], np.cumsum(lengths[lengths > 0])])
        return cls(int(sparse.shape[1]), starts, sparse.indices, sparse.data)

    @classmethod
    def along(cls, matrix: Array, shape: Sequence[int], axis: int) -> Rows:
        """The same rows along one axis of an array of cells, for each place along all others.

        Raises:
            ValueError: when they are no rows.
        """
        before, behind = (eye_array(math.prod(part), dtype=np.int64) for part in (shape[:axis], shape[axis + 1 :]))
        return cls.of(kron(kron(before, csr_array(matrix.astype(np.int64))), behind))

    def alike(self, shape: Sequence[int], axis: int) -> IntArray | None:
        """The matrix that all rows are of along one axis of an array of cells; None where they are not alike."""
        behind, size = math.prod(shape[axis + 1 :]), shape[axis]
        count, rest = divmod(self.count, math.prod(shape) // size)
        if rest or not count:
            return None
        matrix: IntArray = self.matrix[: count * behind : behind][:, : size * behind : behind].toarray()
        return matrix if matrix.any(axis=1).all() and Rows.along(matrix, shape, axis) == self else None

    @property
    def count(self) -> int:
        """Number of rows."""
        return len(self.starts) - 1

    @lazy
    def matrix(self) -> csr_array:
        """The matrix in 64-bit integers."""
        return csr_array((self.weights, self.columns, self.starts), shape=(self.count, self.cells))

    @lazy
    def sensitivity(self) -> Sensitivity:
        """The sensitivity of the rows' sums to one record: the largest sum of a column's absolute weights, and the
        largest sum of its squares, each over all columns. (docs/privacy.md, 9.5)
        """
        absolute, squared = np.zeros(self.cells, np.int64), np.zeros(self.cells, np.int64)
        np.add.at(absolute, self.columns, np.abs(self.weights))
        np.add.at(squared, self.columns, self.weights**2)
        return Sensitivity(int(absolute.max()), int(squared.max()))

    @property
    def _gram(self) -> FloatArray:
        matrix = self.matrix.astype(np.float64)
        if matrix.nnz * _DENSE < self.count * self.cells:
            return np.asarray((matrix.T @ matrix).toarray())
        dense = matrix.toarray()
        return np.asarray(dense.T @ dense)

    @lazy
    def inverse(self) -> tuple[FloatArray, FloatArray | None]:
        """T with ``T T'`` the inverse of ``M'M``, M being the matrix, and a basis of what no row sees: None where that
        is nothing. Otherwise T serves for weights that have nothing along this basis.

        Columns are scaled to equal lengths before, which changes no estimate of what can be estimated.
        """
        gram = self._gram
        scale = 1 / np.sqrt(np.maximum(gram.diagonal(), 1.0))
        gram *= scale
        gram *= scale[:, None]
        try:
            root = cholesky(gram, lower=True, check_finite=False)
            if float(root.diagonal().min()) > _FIRM:
                inverse = solve_triangular(root, np.eye(len(root)), lower=True, check_finite=False)
                return scale[:, None] * inverse.T, None
        except LinAlgError:
            pass
        levels, vectors = eigh(gram, check_finite=False)
        told = levels > _TOLD * levels[-1]
        seen = scale[:, None] * (vectors[:, told] / np.sqrt(levels[told]))
        # Weights w are estimable where w/scale, in the scaled coordinates, has nothing along the others.
        return seen, scale[:, None] * vectors[:, ~told]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Rows):
            return NotImplemented
        return self.cells == other.cells and all(
            np.array_equal(getattr(self, name), getattr(other, name)) for name in ("starts", "columns", "weights")
        )

    def __hash__(self) -> int:
        return hash((self.cells, self.columns.tobytes(), self.weights.tobytes()))

    def document(self) -> dict[str, Any]:
        """The rows as JSON: numbers of so many bits, least byte first, in base64: columns of 16, starts of 32."""
        bits = 16 if int(np.abs(self.weights).max()) < 1 << 15 else 32
        return {
            "cells": self.cells,
            "columns": _packed(self.columns, 16),
            "starts": _packed(self.starts, 32),
            "weights": {"bits": bits, "values": _packed(self.weights, bits)},
        }

    @classmethod
    def read(cls, document: Mapping[str, Any]) -> Rows:
        """The rows of a document.

        Raises:
            KeyError, TypeError, ValueError: when it is none.
        """
        weights = document["weights"]
        if type(document["cells"]) is not int or weights["bits"] not in (16, 32):
            raise ValueError("not the document of rows")
        values = _unpacked(weights["values"], weights["bits"])
        rows = cls(document["cells"], _unpacked(document["starts"], 32), _unpacked(document["columns"], 16), values)
        if rows.document() != document:
            raise ValueError("rows are written in one way")
        return rows


def _packed(numbers: IntArray, bits: int) -> str:
    return base64.b64encode(numbers.astype(f"<i{bits // 8}").tobytes()).decode()


def _unpacked(text: str, bits: int) -> IntArray:
    return np.frombuffer(base64.b64decode(text, validate=True), dtype=f"<i{bits // 8}").astype(np.int64)
