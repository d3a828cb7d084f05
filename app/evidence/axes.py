"""Sums and repetitions along one axis of an array, over the cells of a partition."""

from __future__ import annotations

import numpy as np

from app.spaces.partition import Partition
from app.spaces.tensor import FloatArray


def summed(array: FloatArray, axis: int, partition: Partition) -> FloatArray:
    """The array with one axis summed over the cells of a partition of it."""
    if partition.cells == partition.size:
        return array
    labels = partition.labels
    if bool((np.diff(labels) >= 0).all()):
        starts = partition.members
    else:
        array = np.take(array, np.argsort(labels, kind="stable"), axis=axis)
        starts = np.concatenate([[0], np.cumsum(partition.counts)[:-1]])
    result: FloatArray = np.add.reduceat(array, starts, axis=axis)
    return result


def spread(array: FloatArray, axis: int, partition: Partition) -> FloatArray:
    """The array with each cell along one axis repeated for all members of that cell of a partition."""
    if partition.cells == partition.size:
        return array
    result: FloatArray = np.take(array, partition.labels, axis=axis)
    return result


def along(vector: FloatArray, axis: int, rank: int) -> FloatArray:
    """A vector as an array of the given rank that varies along one axis."""
    return vector.reshape([-1 if k == axis else 1 for k in range(rank)])
