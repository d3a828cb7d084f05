"""Sums of a graph's cells between groups of nodes, with noise, and what they are taken to be beside the degrees.

Degrees let a sum between two groups be expected; a graph with communities differs from that in few sums by far, in most
by chance alone. So what a sum differs by is taken to be normal, with the variance of chance and a multiple of the
square of what is expected, which every sum has of its own: how often each multiple comes is learnt from all sums
together by expectation-maximization (Dempster, Laird and Rubin 1977; Stephens 2017, *False discovery rates: a new
deal*, has mixtures of this form, and the prior for the first of them). What the sums differ by is made up for by what
is expected of the others, so that groups keep the degrees that they have. Together with these degrees such sums make a
degree-corrected block model (Karrer and Newman 2011).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from app.releases.cut_bounds import rounded_up
from app.spaces.lazy import lazy
from app.spaces.queries.blocks import CompiledBlocks
from app.spaces.tensor import FloatArray, IntArray

#: The multiples: what is expected differs by nothing but chance, or about as much as it is, or some times that.
_MULTIPLES = np.array([0.0, *4.0 ** np.arange(8)])
#: In how many sums more than there are nothing but chance is taken to have been, and passes that are made.
_CHANCE, _PASSES = 10.0, 30
#: What is expected of a group is moved by this factor at most in a pass; what a sum is taken to be is no less than this
#: part of what degrees let expect.
_STEP, _LEAST = 2.0, 1e-3
_TINY = 1e-300


@dataclass(frozen=True, eq=False)
class NoisyBlocks:
    """Unbiased sums of cells between groups of nodes, with independent noise.

    Sums are those of the matrix: of an undirected graph, whose matrix is symmetric, what is within a group counts
    twice.

    Attributes:
        rows, columns: of each row and each column the number of its group; what is in no group is in the last one.
        values: of the sums, a row a group of rows.
        variances: of each; infinite where it was not measured.
        symmetric: whether the matrix is.
    """

    rows: IntArray
    columns: IntArray
    values: FloatArray
    variances: FloatArray
    symmetric: bool = False

    @classmethod
    def of(cls, query: CompiledBlocks, numbers: FloatArray, variance: float) -> NoisyBlocks:
        """The numbers that a question asks for, each of a variance."""
        left, right = query.left.cells, query.right.cells
        if query.only_within:
            right, places = left, (np.arange(left), np.arange(left))
        elif query.symmetric:
            places = np.triu_indices(left)
        else:
            places = np.divmod(np.arange(left * right), right)
        values, variances = np.zeros((left + 1, right + 1)), np.full((left + 1, right + 1), np.inf)
        twice = np.where(query.symmetric & (places[0] == places[1]), 2.0, 1.0)
        values[places], variances[places] = twice * numbers, np.square(twice) * variance
        if query.symmetric:
            for each in (values, variances):
                each[places[::-1]] = each[places]
        rows, columns = query.left.labels, query.columns
        rows, columns = np.where(rows < 0, left, rows), np.where(columns < 0, right, columns)
        return cls(rows, columns, values, variances, query.symmetric)

    @property
    def known(self) -> npt.NDArray[np.bool_]:
        """Which of the sums were measured."""
        return np.isfinite(self.variances)

    def sums(self, weights: FloatArray) -> FloatArray:
        """These sums of a matrix."""
        left, right = self._members
        found: FloatArray = (right @ (left @ weights).T).T
        return (found + found.T) / 2 if self.symmetric else found

    def spread(self, table: FloatArray) -> FloatArray:
        """A matrix of which each cell has the number of its two groups."""
        found: FloatArray = table[:, self.columns][self.rows]
        return found

    def cells(self, *, loops: bool) -> FloatArray:
        """How many cells of the matrix there are between each two groups."""
        left, right = self._members
        found: FloatArray = np.outer(left.sum(axis=1), right.sum(axis=1))
        return found if loops else found - (left @ right.T).toarray()

    def beside(self, values: FloatArray, variances: FloatArray) -> NoisyBlocks:
        """The sums that were measured, averaged by precision with others of them."""
        own = np.where(self.known, self.variances, 0.0)
        shares = np.divide(variances, own + variances, out=np.zeros_like(own), where=self.known & (variances > 0))
        averaged = values + shares * (self.values - values)
        return replace(self, values=averaged, variances=np.where(self.known, shares * own, np.inf))

    def told(self, degrees: FloatArray, variance: float, *, axis: int) -> FloatArray:
        """Degrees of which each group has the total that these and the sums tell, averaged by precision.

        Args:
            degrees: of rows, or of columns; not negative.
            variance: of each.
            axis: 0 for rows, 1 for columns.
        """
        side, across = self._members[axis], self._members[1 - axis].sum(axis=1) > 0
        values, variances = (each.T if axis else each for each in (self.values, self.variances))
        held, noise = side @ degrees, variance * side.sum(axis=1)
        # Where one of a group's sums was not measured their total has an infinite variance.
        trust = np.divide(noise, noise + variances[:, across].sum(axis=1), out=np.zeros_like(noise), where=noise > 0)
        totals = np.maximum(held + trust * (values[:, across].sum(axis=1) - held), 0)
        scaled: FloatArray = degrees * (side.T @ _ratio(totals, held))
        return scaled

    def expected(self, base: FloatArray) -> FloatArray:
        """The values that the measured sums are taken to have.

        Args:
            base: these sums of the weights that degrees let expect.
        """
        there = self.known & (base > 0)
        totals, expected, taken = (base.sum(axis=1), base.sum(axis=0)), base, base
        weights = np.full(len(_MULTIPLES), 1 / len(_MULTIPLES))
        for _ in range(_PASSES):
            own, noise = expected[there, None], self.variances[there, None]
            differing = own + _MULTIPLES * np.square(own)
            off, both = self.values[there, None] - own, differing + noise
            logs = np.log(weights) - (np.square(off) / both + np.log(both)) / 2
            parts = np.exp(logs - logs.max(axis=1, keepdims=True))
            parts /= parts.sum(axis=1, keepdims=True)
            counts = np.maximum(parts.sum(axis=0), _TINY)
            counts[0] += _CHANCE
            weights = counts / counts.sum()
            moved = np.zeros_like(base)
            moved[there] = np.maximum((parts * (differing / both)).sum(axis=1) * off[:, 0], -own[:, 0])
            taken = expected + moved
            by_row, by_column = (
                np.sqrt(np.clip(_ratio(total - moved.sum(axis=axis), expected.sum(axis=axis)), 1 / _STEP, _STEP))
                for axis, total in zip((1, 0), totals, strict=True)
            )
            expected = expected * np.multiply.outer(by_row, by_column)
        found = np.maximum(taken, _LEAST * base)
        return (found + found.T) / 2 if self.symmetric else found

    def document(self, weights: FloatArray) -> dict[str, Any]:
        """As JSON: how many numbers were measured, their standard error (of an undirected graph that of edges counted
        once), and the root mean square of what these sums of a graph's weights lie apart from them.
        """
        once = np.where(self.symmetric & np.eye(*self.values.shape, dtype=np.bool_), 2.0, 1.0)
        asked = np.triu(self.known) if self.symmetric else self.known
        apart = ((self.sums(weights) - self.values) / once)[asked]
        error = float(np.sqrt(self.variances / np.square(once))[asked][0])
        return {
            "numbers": int(asked.sum()),
            "error": rounded_up(error),
            "discrepancy": float(np.sqrt(np.mean(np.square(apart)))),
        }

    @lazy
    def _members(self) -> tuple[csr_array, csr_array]:
        """Of each group of rows, and of each of columns, who is in it."""
        left, right = (
            csr_array((np.ones(len(labels)), (labels, np.arange(len(labels)))), shape=(groups, len(labels)))
            for labels, groups in zip((self.rows, self.columns), self.values.shape, strict=True)
        )
        return left, right


def _ratio(wanted: FloatArray, held: FloatArray) -> FloatArray:
    result: FloatArray = np.divide(wanted, held, out=np.ones_like(wanted), where=held > 0)
    return result
