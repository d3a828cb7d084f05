"""Counts of the nodes of trees by least squares: every node's count is the sum of its children's.

Nodes of one level are those of the next one, summed. What was measured of each node, with independent noise, is put
together in two passes. From the leaves up: a node is known by itself and by the sum of what is known of its children,
averaged by precision. From the root down: what a node is known by from all of the tree leaves a difference to the sum
of its children's counts, which is divided among them in proportion to their variances. That is generalised least
squares over everything that was measured, in time proportional to the number of nodes, and variances are exact: given a
node's count, what is measured within it tells nothing of the rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from app.spaces.partition import Partition
from app.spaces.tensor import FloatArray


@dataclass
class Level:
    """The nodes of one level, each one a cell along the first axis; trees stand beside each other along the second.

    Attributes:
        cells: for each node of the next finer level the node that it is counted in; None of the finest.
        values: the average of what was measured of each node.
        precisions: one over the variances of these; 0 where nothing was measured, infinite where it is exact.
    """

    cells: Partition | None
    values: FloatArray
    precisions: FloatArray

    @classmethod
    def blank(cls, cells: Partition | None, nodes: int, trees: int) -> Level:
        """Nodes of which nothing was measured."""
        return cls(cells, np.zeros((nodes, trees)), np.zeros((nodes, trees)))

    def learn(self, values: FloatArray, variances: FloatArray) -> None:
        """Average independent values in; those of what is known exactly stay."""
        with np.errstate(invalid="ignore"):
            added = np.where(np.isinf(self.precisions), 0.0, 1 / variances)
            self.precisions = self.precisions + added
            share = np.where(added > 0, added / self.precisions, 0.0)
        self.values = self.values + share * (values - self.values)


def least_squares(levels: Sequence[Level]) -> list[tuple[FloatArray, FloatArray]]:
    """The best linear unbiased counts of all nodes and their variances, level by level; NaN where what was measured
    does not determine them.

    Args:
        levels: from the root down. Of a level everything was measured or nothing, in each tree by itself.
    """
    known: list[tuple[FloatArray, FloatArray]] = []
    sums: list[tuple[FloatArray, FloatArray]] = []
    # What is not known has an infinite variance, and zero in the place of a value.
    with np.errstate(divide="ignore", invalid="ignore"):
        for level in reversed(levels):
            values, precisions = level.values, level.precisions
            if level.cells is not None:
                below, variances = (level.cells.summed(array, 0) for array in known[0])
                share = np.where(np.isinf(precisions), 1.0, precisions / (precisions + 1 / variances))
                values = below + np.nan_to_num(share) * (values - below)
                precisions = precisions + 1 / variances
                sums.insert(0, (below, variances))
            known.insert(0, (values, 1 / precisions))
        found = known[:1]
        for level, (values, variances), (below, spread) in zip(levels, known[1:], sums, strict=False):
            assert level.cells is not None
            single = (level.cells.counts == 1)[level.cells.labels][:, None]
            above, sure, below, spread = (level.cells.spread(array, 0) for array in (*found[-1], below, spread))
            # A single child is its parent, whatever is known of it.
            part = np.where(single, 1.0, np.where(spread > 0, variances / spread, 0.0))
            left = np.where(single, 0.0, variances * (1 - part)) + part**2 * sure
            found.append((values + part * (above - below), left))
    return [(np.where(np.isfinite(left), x, np.nan), np.where(np.isfinite(left), left, np.nan)) for x, left in found]
