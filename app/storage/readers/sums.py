"""Sums that cannot wrap: what the capacity of a data set is held against."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

_PART = 1 << 20


def exact_sum(values: NDArray[Any]) -> int:
    """The sum of integers of at most 64 bits (signed ones, or unsigned ones below 2^63), of any number of them.

    A sum of 64-bit integers wraps without a word, and a capacity that a wrapped sum keeps bounds nothing. So both
    halves of each are added up by themselves, a million at a time: neither sum passes 2^52.
    """
    total, flat = 0, values.reshape(-1)
    for start in range(0, flat.size, _PART):
        part = flat[start : start + _PART].astype(np.int64, copy=False)
        total += (int((part >> 32).sum()) << 32) + int((part & 0xFFFFFFFF).sum())
    return total
