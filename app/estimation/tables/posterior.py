"""Posterior variances of sums of counts: independent Gaussian priors, known values of sets of cells.

With D the prior variances, W the 0/1 matrix of which cell is counted in which value and S the variances of the values,
the posterior covariance is ``(D^-1 + W' S^-1 W)^-1 = D - D W' (S + W D W')^-1 W D``; the smaller of the two systems is
solved. (Values of sums with other weights are rows of W with these.) Values of single cells are taken into D first,
where they cost nothing. Where the total is known exactly the covariance C is conditioned on it:
``C - C 1 1' C / (1' C 1)``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.linalg import cholesky, solve_triangular
from scipy.sparse import csc_array, issparse, vstack

from app.estimation.tables.restrictions import Values, Weighed
from app.spaces.lazy import kept_of, lazy
from app.spaces.tensor import FloatArray, IntArray

#: The most values, where there are more cells too, that are taken into account: a second or so.
MOST_ROWS = 2048


class Posterior:
    """The posterior of the counts of some cells.

    Args:
        prior: variance of each cell's count.
        known: values of sets of cells. Beyond ``MOST_ROWS`` of them, where there are more cells still, the least
            certain are left out: variances are then bounds from above.
        exact: whether the sum of all counts is known.
    """

    def __init__(self, prior: FloatArray, known: Sequence[Values | Weighed], *, exact: bool) -> None:
        cells = len(prior)
        precision = 1 / prior
        rows: list[Values | Weighed] = []
        for values in known:
            if isinstance(values, Values) and len(values.values) == cells:
                precision = precision + (1 / values.variances)[values.labels]
            else:
                rows.append(values)
        if cells > MOST_ROWS:
            rows.sort(key=lambda values: float(values.variances.min()))
            taken = np.cumsum([len(values.values) for values in rows])
            rows = rows[: int(np.searchsorted(taken, MOST_ROWS, side="right"))]
        self._prior = 1 / precision
        self._exact = exact
        self._counted, self._variances = incidence(rows, cells), np.concatenate([*(v.variances for v in rows), []])
        self._by_values = len(self._variances) <= cells

    @property
    def nbytes(self) -> int:
        """The bytes that it takes now."""
        made = sum(root.nbytes for root in kept_of(self, "_root")) + sum(
            sums.nbytes for sums, _ in kept_of(self, "_whole")
        )
        return int(self._prior.nbytes + self._variances.nbytes + made) + sparse_bytes(self._counted)

    @lazy
    def _root(self) -> FloatArray:
        """The lower Cholesky factor of the smaller system."""
        counted = self._counted
        if self._by_values:
            system = ((counted * self._prior) @ counted.T).toarray()
            system[np.diag_indices(len(system))] += self._variances
        else:
            system = (counted.T @ (counted.multiply((1 / self._variances)[:, None]).tocsc())).toarray()
            system[np.diag_indices(len(system))] += 1 / self._prior
        return np.asarray(cholesky(system, lower=True, overwrite_a=True, check_finite=False))

    def _solved(self, columns: Any) -> FloatArray:
        """The root's inverse times what columns of weights on cells (dense or sparse) are in its system."""
        if not len(self._variances):
            return np.zeros((0, columns.shape[1]))
        if self._by_values:
            columns = (self._counted * self._prior) @ columns
        dense = columns.toarray() if issparse(columns) else columns
        return np.asarray(solve_triangular(self._root, dense, lower=True, check_finite=False))

    @lazy
    def _whole(self) -> tuple[FloatArray, float]:
        """The sum of all counts: solved as a column, and its variance before it is known."""
        ones = np.ones((len(self._prior), 1))
        solved = self._solved(ones)[:, 0]
        squared = float(solved @ solved)
        return solved, float(self._prior.sum()) - squared if self._by_values else squared

    def of_sum(self, weights: FloatArray) -> float:
        """The variance of one sum, a weight for each cell."""
        return float(self.of_sums(weights[:, None])[0])

    def of_sums(self, weights: FloatArray) -> FloatArray:
        """The variances of several sums, a column of weights for each."""
        return self._spread(self._prior @ (weights * weights), self._prior @ weights, self._solved(weights))

    def of_groups(self, labels: IntArray, count: int) -> FloatArray:
        """The variances of the sums over groups of cells, ``labels`` the group of each cell."""
        cells = len(labels)
        columns = csc_array((np.ones(cells), (np.arange(cells), labels)), shape=(cells, count))
        own = np.bincount(labels, weights=self._prior, minlength=count).astype(np.float64)
        return self._spread(own, own, self._solved(columns))

    def _spread(self, own: FloatArray, shared: FloatArray, solved: FloatArray) -> FloatArray:
        squared = np.einsum("ij,ij->j", solved, solved)
        variances = own - squared if self._by_values else squared
        if self._exact:
            whole, variance = self._whole
            against = whole @ solved
            against = shared - against if self._by_values else against
            variances = variances - against * against / variance
        return np.asarray(np.maximum(variances, 0.0))


def sparse_bytes(matrix: csc_array) -> int:
    """The bytes of a sparse matrix."""
    return int(matrix.data.nbytes + matrix.indices.nbytes + matrix.indptr.nbytes)


def incidence(known: Sequence[Values | Weighed], cells: int) -> csc_array:
    """The weight of each cell in each value, values by cells, one after another: 1 or 0 where they are counts."""
    counts = [values for values in known if isinstance(values, Values)]
    if len(counts) < len(known):
        blocks = [v.counted if isinstance(v, Weighed) else incidence([v], cells) for v in known]
        return csc_array(vstack(blocks, format="csc"))
    return _counted(counts, cells)


def _counted(known: Sequence[Values], cells: int) -> csc_array:
    sizes = [len(values.values) for values in known]
    starts = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    rows = np.empty((cells, len(known)), dtype=np.int64)
    for k, values in enumerate(known):
        rows[:, k] = values.labels + starts[k]
    pointers = np.arange(cells + 1, dtype=np.int64) * len(known)
    return csc_array((np.ones(rows.size), rows.reshape(-1), pointers), shape=(int(starts[-1]), cells))
