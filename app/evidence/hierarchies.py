"""Counts of ever finer bins of one attribute: made consistent by least squares, and read as a distribution.

A hierarchy is a chain of partitions of the values of an attribute, each finer than the one before, and counts of the
cells of each with independent noise of one variance a level. Weighted least squares over such a tree takes two passes
(Hay et al. 2010, for trees of equal degree and noise): from the leaves up each cell's count is the average, by
precision, of what was measured and what its children sum to; from the root down what a cell and its children differ
by is divided among the children by their variances.

The number of records below a value is a sum of counts along one path of the tree, and its exact variance follows on the
same way: below a cell with count x and variance V, the number within it up to some value is ``g + beta x``, where g is
independent of x and of everything outside of the cell.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from app.evidence.measurements import Partition
from app.spaces.tensor import FloatArray, IntArray

#: A cell is divided into so many, and there are no more leaves than this.
DEGREE, MOST_LEAVES = 16, 1 << 12


def levels_of(values: int, cells: int) -> list[Partition]:
    """The partitions of a hierarchy over so many values, from coarse to fine, the last with at most ``cells`` cells.

    Cells of each level are ranges of equally many values, but for the last one, and unions of cells of the next level.
    """
    width = -(-values // max(1, min(cells, MOST_LEAVES)))
    found: list[Partition] = []
    while width < values:
        found.append(Partition.of(np.arange(values) // width))
        width *= DEGREE
    return found[::-1]


@dataclass(frozen=True, eq=False)
class Cumulative:
    """The numbers of records below the ends of ranges of values, of several groups.

    Attributes:
        ends: for each leaf the value behind its last.
        below: the number of records in it and in all before, a row a group.
        free: the variance of that part of each which does not depend on the group's total.
        share: what each takes of the group's total.
        total: the estimated total of each group.
        variance: of each total.
    """

    ends: IntArray
    below: FloatArray
    free: FloatArray
    share: FloatArray
    total: FloatArray
    variance: FloatArray

    def variances(self, level: float) -> FloatArray:
        """The variances of numbers below less a part of the total, a row a group."""
        return np.asarray(self.free + (self.share - level) ** 2 * self.variance[:, None])


@dataclass(frozen=True, eq=False)
class Level:
    """What was measured of one level: the partition of the values, counts (a row a group) and the variance of each."""

    partition: Partition
    counts: FloatArray
    variances: FloatArray


def cumulative(levels: Sequence[Level], total: float | None = None) -> Cumulative:
    """The least squares estimate from the counts of all levels.

    With z and V the averages and variances of the first pass, and a = V_i / sum of V a child's part among its siblings,
    what lies within a cell u before some place in its child j is ``g_u + b_u x_u``, where

        b_u = sum of a_i before j + a_j b_j,    Var g_u = Var g_j + sum of V_i before j + b_j^2 V_j - b_u^2 sum of V_i.

    Args:
        levels: from coarse to fine, each refining the one before.
        total: what all counts of a group sum to, where that is known exactly.
    """
    finest = levels[-1]
    counts = [finest.counts]
    variances = [np.broadcast_to(finest.variances, finest.counts.shape)]
    begins: list[IntArray] = []
    for level, finer in zip(levels[-2::-1], levels[:0:-1], strict=True):
        begins.append(level.partition.over(finer.partition).members)
        sums = np.add.reduceat(counts[-1], begins[-1], axis=1)
        spread = np.add.reduceat(variances[-1], begins[-1], axis=1)
        weight = spread / (spread + level.variances)
        counts.append(sums + weight * (level.counts - sums))
        variances.append(weight * level.variances)
    begins.append(np.zeros(1, dtype=np.int64))  # of the root, which is all of them
    # Up again, for the end of every leaf.
    free, share = np.zeros_like(counts[0]), np.ones_like(counts[0])
    place = np.arange(counts[0].shape[1])
    for begin, own in zip(begins, variances, strict=True):
        parent = _parents(begin, own.shape[1])
        whole = np.add.reduceat(own, begin, axis=1)
        before = np.cumsum(own, axis=1) - own
        before -= before[:, begin][:, parent]
        mine, ahead, every = own[:, place], before[:, place], whole[:, parent[place]]
        wider = (ahead + share * mine) / every
        free = free + ahead + share * share * mine - wider * wider * every
        share, place = wider, parent[place]
    # Down, the estimates.
    root = counts[-1].sum(axis=1, keepdims=True)
    variance = np.zeros(len(root)) if total is not None else variances[-1].sum(axis=1)
    estimate = root if total is None else np.full_like(root, total)
    for begin, own, spread in zip(begins[::-1], counts[::-1], variances[::-1], strict=True):
        parent = _parents(begin, own.shape[1])
        apart = estimate - np.add.reduceat(own, begin, axis=1)
        estimate = own + spread * (apart / np.add.reduceat(spread, begin, axis=1))[:, parent]
    return Cumulative(
        ends=np.append(finest.partition.members[1:], finest.partition.size),
        below=np.cumsum(estimate, axis=1),
        free=np.maximum(free, 0.0),
        share=share,
        total=estimate.sum(axis=1),
        variance=variance,
    )


def _parents(begins: IntArray, children: int) -> IntArray:
    """The parent of each child, where each parent's first child is given."""
    marks = np.zeros(children, dtype=np.int64)
    marks[begins[1:]] = 1
    return np.cumsum(marks)
