"""Matrices of low rank: factors of a given one, and orthonormal bases of growing column and row spaces."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from app.geometry.norms import PIECE, FloatArray

#: What is left of a vector outside of a basis is rounding where it is a smaller part than this.
NEGLIGIBLE = 2.0**-40


class Basis:
    """Orthonormal vectors of R^n that grow as vectors come (Gram-Schmidt, each vector orthogonalised twice).

    Two passes leave the basis orthonormal to a few units in the last place ("twice is enough": Giraud, Langou,
    Rozloznik 2005). A vector whose remainder is negligible is taken to lie in the span, which drops less than
    ``NEGLIGIBLE`` of its length.
    """

    def __init__(self, length: int) -> None:
        self.size = 0
        self._vectors = np.zeros((length, 8))

    @classmethod
    def of(cls, vectors: FloatArray) -> Basis:
        """The basis of these orthonormal columns, with the room that it had when it had grown to them."""
        made = cls(len(vectors))
        made.size = vectors.shape[1]
        while made._vectors.shape[1] < made.size:
            made._grow()
        made._vectors[:, : made.size] = vectors
        return made

    def _grow(self) -> None:
        self._vectors = np.concatenate([self._vectors, np.zeros_like(self._vectors)], axis=1)

    @property
    def vectors(self) -> FloatArray:
        """The basis, one column a vector."""
        return self._vectors[:, : self.size]

    def coordinates(self, vector: FloatArray) -> FloatArray:
        """Inner products with the basis."""
        result: FloatArray = self.vectors.T @ vector
        return result

    def include(self, vector: FloatArray) -> FloatArray:
        """Coordinates of a vector in the basis, grown by its remainder where there is one."""
        length = float(np.sqrt(vector @ vector))
        found = self.coordinates(vector)
        remainder = vector - self.vectors @ found
        again = self.coordinates(remainder)
        remainder -= self.vectors @ again
        found += again
        left = float(np.sqrt(remainder @ remainder))
        if left <= NEGLIGIBLE * length:
            return found
        if self.size == self._vectors.shape[1]:
            self._grow()
        self._vectors[:, self.size] = remainder / left
        self.size += 1
        return np.append(found, left)


def padded(core: FloatArray, rows: int, columns: int) -> FloatArray:
    """A matrix with zeros added below and to the right."""
    result = np.zeros((rows, columns))
    result[: core.shape[0], : core.shape[1]] = core
    return result


def split(matrix: FloatArray) -> tuple[FloatArray, Callable[[FloatArray], FloatArray]]:
    """The singular values of a matrix, and what makes the matrix of others with the same singular vectors."""
    left, values, right = np.linalg.svd(matrix, full_matrices=False)
    return values, lambda others: (left * others) @ right


@dataclass(frozen=True, eq=False)
class Factors:
    """The matrix ``left right'``, and how far at most it is from the one it stands for.

    ``largest`` is the largest magnitude of the difference's entries, ``length`` its Frobenius norm.
    """

    left: FloatArray
    right: FloatArray
    largest: float = 0.0
    length: float = 0.0

    @property
    def rank(self) -> int:
        """How many rank-one terms there are."""
        return int(self.left.shape[1])

    def dense(self) -> FloatArray:
        """The matrix itself."""
        result: FloatArray = self.left @ self.right.T
        return result


#: Columns of the first trial range; one that does not hold enough of the matrix is followed by four times as many.
_TRIAL = 16
#: Columns that a range has beyond the rank: the more, the closer it comes to the best range of that rank.
_SPARE = 8


def factors(matrix: FloatArray, off: float, most: int) -> Factors | None:
    """Factors of the smallest rank that leaves a root mean square of at most ``off`` an entry; None where that seems to
    take more than ``most`` terms.

    Singular vectors of the matrix within the range of its product with random signs, after one more pass over it
    (Halko, Martinsson, Tropp 2011, algorithms 4.4 and 5.1). The signs are the same every time, so are the factors.
    What these are off by is measured, not estimated: an unlucky range costs terms, never accuracy.
    """
    width = 0
    while width < most + _SPARE:
        width = min(4 * width or _TRIAL, most + _SPARE)
        base, left, values, right = _within_range(matrix, width)
        # What the first so many terms leave of the sum of squares.
        remainder = float(np.vdot(matrix, matrix)) - np.cumsum(np.concatenate([[0.0], values**2]))
        allowed = off**2 * matrix.size
        found = max(1, int(np.count_nonzero(remainder > allowed)))
        if found <= min(most, width - _SPARE // 2):
            return _measured(matrix, base @ left[:, :found] * values[:found], right[:found].T)
        # Later terms are about as large as the middle one at most: should all be, would they be enough?
        if width < most and float(remainder[-1]) - (most - width) * float(values[len(values) // 2]) ** 2 > allowed:
            return None
    return None


def _within_range(matrix: FloatArray, width: int) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    """A basis of about the range of the ``width`` largest singular vectors, and the decomposition within it."""
    trial = matrix @ _signs(matrix.shape[1], width)
    trial = matrix @ (matrix.T @ np.linalg.qr(trial)[0])
    base = np.linalg.qr(trial)[0]
    return base, *np.linalg.svd(base.T @ matrix, full_matrices=False)


def _measured(matrix: FloatArray, left: FloatArray, right: FloatArray) -> Factors:
    largest, square = 0.0, 0.0
    band = max(1, PIECE // len(right))
    for start in range(0, len(left), band):
        remainder = matrix[start : start + band] - left[start : start + band] @ right.T
        largest = max(largest, float(remainder.max()), -float(remainder.min()))
        square += float(np.vdot(remainder, remainder))
    return Factors(left, right, largest, square**0.5)


def _signs(rows: int, columns: int) -> FloatArray:
    """Random signs that are always the same."""
    words = np.random.PCG64(0).random_raw(-(-rows * columns // 64))
    bits = np.unpackbits(np.asarray(words, dtype="<u8").view(np.uint8), count=rows * columns)
    return np.asarray(2.0 * bits - 1.0, dtype=np.float64).reshape(rows, columns)
