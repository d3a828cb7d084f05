"""Number types that follow from public bounds alone: the same for every data set that a declaration allows."""

from typing import Any

import numpy as np


def integer_type(low: int, high: int) -> np.dtype[Any]:
    """The narrowest integer type that holds all of [low, high].

    Raises:
        OverflowError: beyond 64 bits.
    """
    for candidate in (np.uint8, np.int8, np.uint16, np.int16, np.int32, np.int64):
        bounds = np.iinfo(candidate)
        if bounds.min <= low and high <= bounds.max:
            return np.dtype(candidate)
    raise OverflowError("64 bits do not hold the declared bounds")
