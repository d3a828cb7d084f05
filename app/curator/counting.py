"""Exact counts of a marginal's cells, from whatever holds the private numbers of a table."""

from __future__ import annotations

import numpy as np

from app.evidence.measurements import Marginal
from app.spaces.tensor import IntArray, PrivateTensor


def counted(marginal: Marginal, data: PrivateTensor) -> IntArray:
    """The number of records in each cell, in the marginal's shape."""
    counts = np.asarray(data.marginal(marginal.attributes), np.int64)
    for axis, partition in enumerate(marginal.partitions):
        if partition is not None:
            order = np.argsort(partition.labels, kind="stable")
            starts = np.concatenate([[0], np.cumsum(partition.counts)[:-1]])
            counts = np.add.reduceat(counts.take(order, axis=axis), starts, axis=axis)
    return counts
