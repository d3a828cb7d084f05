"""Exact counts of a marginal's cells, from whatever holds the private numbers of a table."""

from __future__ import annotations

import numpy as np

from app.evidence.measurements import Marginal
from app.spaces.records import RecordsTensor
from app.spaces.tensor import IntArray, PrivateTensor


def counted(marginal: Marginal, data: PrivateTensor) -> IntArray:
    """The number of records in each cell, in the marginal's shape.

    Records are counted in the cells at once: the values told apart may be too many to be counted one by one.
    """
    if isinstance(data, RecordsTensor):
        labels = [None if p is None else p.labels.astype(np.min_scalar_type(p.cells)) for p in marginal.partitions]
        columns = [data.columns[attribute] for attribute in marginal.attributes]
        told = [c if part is None else part[c] for c, part in zip(columns, labels, strict=True)]
        if told:
            return RecordsTensor(told, marginal.shape).marginal(tuple(range(len(told))))
    counts = np.asarray(data.marginal(marginal.attributes), np.int64)
    for axis, partition in enumerate(marginal.partitions):
        if partition is not None:
            order = np.argsort(partition.labels, kind="stable")
            starts = np.concatenate([[0], np.cumsum(partition.counts)[:-1]])
            counts = np.add.reduceat(counts.take(order, axis=axis), starts, axis=axis)
    return counts
