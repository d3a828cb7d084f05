"""Which bits to turn over: exact coins from the operating system's generator, for randomised response."""

import os
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from app.privacy.costs import LEAST_FLIP
from app.privacy.errors import InvalidEvent
from app.privacy.exactness import Exact, exact

#: A probability is a whole multiple of 2^-WORD.
WORD = 64
#: Coins that are thrown at a time: their words take 8 MiB.
_PART = 1 << 20


class Flips:
    """Independent bits, each 1 with probability p.

    A word of 64 random bits is below ``p 2^64`` with probability p exactly, where that is a whole number: there is
    nothing to be rounded, and every coin takes as long as any other.

    Args:
        probability: p, a multiple of 2^-64 from 2^-62 to less than one half.

    Raises:
        InvalidEvent: for any other.
    """

    __slots__ = ("_below", "probability")

    def __init__(self, probability: Exact) -> None:
        try:
            self.probability = exact(probability, "probability")
        except (TypeError, ValueError) as error:
            raise InvalidEvent(str(error)) from None
        below = self.probability * (1 << WORD)
        if not LEAST_FLIP <= self.probability < Fraction(1, 2) or below.denominator != 1:
            raise InvalidEvent("a bit is turned over with a multiple of 2^-64 from 2^-62 to less than one half")
        self._below = np.uint64(below.numerator)

    def take(self, n: int) -> npt.NDArray[np.uint8]:
        """``n`` fresh bits, shape (n,), 0 or 1."""
        taken = np.empty(n, dtype=np.uint8)
        for start in range(0, n, _PART):
            count = min(_PART, n - start)
            words = np.frombuffer(os.urandom(count * WORD // 8), dtype=np.uint64)
            np.less(words, self._below, out=taken[start : start + count].view(np.bool_))
        return taken

    def __repr__(self) -> str:
        return f"Flips(probability={self.probability})"
