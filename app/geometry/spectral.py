"""Matrices of low rank in orthonormal bases of their column and row spaces."""

from __future__ import annotations

import numpy as np

from app.geometry.norms import FloatArray

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
