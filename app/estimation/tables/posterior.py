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
from scipy.linalg import LinAlgError, cholesky, qr, solve_triangular
from scipy.sparse import csc_array, issparse, vstack

from app.estimation.tables.restrictions import Values, Weighed
from app.spaces.lazy import kept_of, lazy
from app.spaces.tensor import FloatArray, IntArray

#: The most values, where there are more cells too, that are taken into account: a second or so.
MOST_ROWS = 2048
#: What is known this many times as well as before is no difference of the two: that loses a part of 2^-52 of what was
#: before, and more where there are many values.
_MOST_LOST = 2.0**24
#: A pivot that is a smaller part of its diagonal has lost too many of its digits.
_LEAST_PIVOT = 2.0**-32
#: The part that a diagonal has more, at least, where rounding leaves a system without a factor.
_LEAST_MORE = 2.0**-48
#: The most work, in multiplications, of a factor from the square root of a system: a second or so.
_MOST_FACTORED = 1 << 31
#: About how many numbers of columns are counted out at a time.
_AT_ONCE = 1 << 18


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
        #: Whether more stands on the diagonal of the factor's system than belongs there.
        self._rough = False

    @property
    def nbytes(self) -> int:
        """The bytes that it takes now."""
        made = sum(root.nbytes for root in kept_of(self, "_root")) + sum(
            solved.nbytes + y.nbytes + rest.nbytes for solved, y, rest, _ in kept_of(self, "_whole")
        )
        return int(self._prior.nbytes + self._variances.nbytes + made) + sparse_bytes(self._counted)

    @lazy
    def _root(self) -> FloatArray:
        """The lower Cholesky factor of the smaller system. Where rounding leaves next to nothing of it, that from its
        square root, if it is not too large; else of a system with so much more on its diagonal that it has one."""
        counted = self._counted
        if self._by_values:
            system = ((counted * self._prior) @ counted.T).toarray()
            system[np.diag_indices(len(system))] += self._variances
        else:
            system = (counted.T @ (counted.multiply((1 / self._variances)[:, None]).tocsc())).toarray()
            system[np.diag_indices(len(system))] += 1 / self._prior
        diagonal, more = np.diag(system).copy(), 0.0
        while True:
            try:
                root = cholesky(system, lower=True, check_finite=False)
            except LinAlgError:
                root = None
            if root is not None and (np.square(np.diag(root)) > diagonal * _LEAST_PIVOT).all():
                return np.asarray(root)
            self._rough = True
            if sum(counted.shape) * len(system) ** 2 <= _MOST_FACTORED:
                return self._squared_root()
            if root is not None:
                return np.asarray(root)
            more = max(4 * more, _LEAST_MORE)
            system[np.diag_indices(len(system))] = diagonal * (1 + more)

    def _squared_root(self) -> FloatArray:
        """The factor, from the square root of the system: it loses half as many digits."""
        if self._by_values:
            above, below = (self._counted * np.sqrt(self._prior)).T, np.sqrt(self._variances)
        else:
            above, below = self._counted.multiply(1 / np.sqrt(self._variances)[:, None]), 1 / np.sqrt(self._prior)
        stacked = np.concatenate([above.toarray(), np.diag(below)])
        # Rows of large numbers come first: small ones keep their digits then.
        order = np.argsort(-np.abs(stacked).max(axis=1), kind="stable")
        return np.asarray(qr(stacked[order], mode="r", check_finite=False)[0][: stacked.shape[1]].T)

    def _solved(self, columns: Any) -> FloatArray:
        """The root's inverse times what columns of weights on cells (dense or sparse) are in its system."""
        if not len(self._variances):
            return np.zeros((0, columns.shape[1]))
        if self._by_values:
            columns = (self._counted * self._prior) @ columns
        dense = columns.toarray() if issparse(columns) else columns
        return np.asarray(solve_triangular(self._root, dense, lower=True, check_finite=False))

    @lazy
    def _whole(self) -> tuple[FloatArray, FloatArray, FloatArray, float]:
        """The sum of all counts: solved as a column, the weights of values in its estimate, what these leave of it, and
        its variance before it is known."""
        ones = np.ones((len(self._prior), 1))
        solved = self._solved(ones)
        y = self._weighing(solved)
        rest = ones - self._counted.T @ y
        return solved[:, 0], y, rest, float(self._off_by(rest, y)[0])

    def of_sum(self, weights: FloatArray) -> float:
        """The variance of one sum, a weight for each cell."""
        return float(self.of_sums(weights[:, None])[0])

    def of_sums(self, weights: FloatArray) -> FloatArray:
        """The variances of several sums, a column of weights for each."""
        return self._spread(weights, self._prior @ (weights * weights), self._prior @ weights)

    def of_groups(self, labels: IntArray, count: int) -> FloatArray:
        """The variances of the sums over groups of cells, ``labels`` the group of each cell."""
        cells = len(labels)
        columns = csc_array((np.ones(cells), (np.arange(cells), labels)), shape=(cells, count))
        own = np.bincount(labels, weights=self._prior, minlength=count).astype(np.float64)
        return self._spread(columns, own, own)

    def _spread(self, columns: Any, own: FloatArray, shared: FloatArray) -> FloatArray:
        """The variances of sums, columns of weights on cells, of which is told what they are before anything is known,
        and what they share with the sum of all."""
        solved = self._solved(columns)
        squared = np.einsum("ij,ij->j", solved, solved)
        variances = own - squared if self._by_values else squared
        if self._exact:
            whole, *_, variance = self._whole
            against = whole @ solved
            against = shared - against if self._by_values else against
            variances = variances - against * against / variance
        lost = np.flatnonzero(~(variances > own / _MOST_LOST) | self._rough)
        if len(lost) and len(self._variances):
            variances[lost] = self._counted_out(columns[:, lost], solved[:, lost])
        return np.asarray(np.clip(variances, 0.0, own))  # nothing that is known makes anything less certain

    def _counted_out(self, columns: Any, solved: FloatArray) -> FloatArray:
        """The variances of sums without a difference of large numbers: of the estimate that the solution makes of each.

        What values weighed by y leave of a sum, and the values themselves, are off by ``|D^(1/2) (w - W'y)|^2 +
        |S^(1/2) y|^2``, whatever y is: no rounding in y makes it less than the posterior's, which is the least of all.
        A known total is one value more, which is off by nothing.
        """
        weighed = self._weighing(solved)
        found = np.empty(columns.shape[1])
        step = max(1, _AT_ONCE // len(self._prior))
        for start in range(0, columns.shape[1], step):
            part = columns[:, start : start + step]
            y = weighed[:, start : start + step]
            part = part.toarray() if issparse(part) else part
            rest = part - self._counted.T @ y
            if self._by_values:
                # What rounding left to be weighed.
                lacking = self._counted @ (self._prior[:, None] * rest) - self._variances[:, None] * y
                y = y + self._weighing(solve_triangular(self._root, lacking, lower=True, check_finite=False))
                rest = part - self._counted.T @ y
            if self._exact:
                _, one, left, variance = self._whole
                parts = ((self._prior * left[:, 0]) @ rest + (self._variances * one[:, 0]) @ y) / variance
                rest, y = rest - left * parts, y - one * parts
            found[start : start + step] = self._off_by(rest, y)
        return found

    def _off_by(self, rest: FloatArray, y: FloatArray) -> FloatArray:
        """The variances of what estimates are off by that weigh values by y, and leave the rest of each sum."""
        return np.asarray(self._prior @ np.square(rest) + self._variances @ np.square(y))

    def _weighing(self, solved: FloatArray) -> FloatArray:
        """The weights that values have in the estimates of columns, which were solved."""
        if not len(self._variances):
            return solved
        found = solve_triangular(self._root, solved, lower=True, trans="T", check_finite=False)
        return np.asarray(found if self._by_values else (self._counted @ found) / self._variances[:, None])


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
