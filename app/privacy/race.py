"""The secret number of comparisons of a Poisson race."""

from __future__ import annotations

import secrets
from decimal import Decimal, localcontext
from fractions import Fraction

from app.privacy.exactness import WORKING, to_decimal

_BITS = 128

#: Bound on the total variation between :class:`PoissonCounts` and the Poisson law cut at the same place: each of at
#: most 2^15 probabilities is off by less than 2^-127.
SAMPLER_DISTANCE = Fraction(1, 2 ** (_BITS - 1 - 15))
_MOST = 2**15 - 1


class PoissonCounts:
    """Draws ``min(N, cut)`` for ``N ~ Poisson(mean)`` from the system's generator, by inversion of a table.

    A uniform 128-bit integer is held against all thresholds, whichever it passes: what is done does not depend on the
    number drawn. The thresholds are the distribution function in 100 digits, rounded to 128 bits.

    Raises:
        ValueError: for a mean that is not positive, or a cut outside 1..32767.
    """

    __slots__ = ("_thresholds",)

    def __init__(self, mean: Decimal, cut: int) -> None:
        if not mean > 0 or not 1 <= cut <= _MOST:
            raise ValueError("a race has a positive mean and a cut from 1 to 32767")
        with localcontext(WORKING):
            rate = to_decimal(Fraction(mean))
            term = total = (-rate).exp()
            thresholds = []
            for n in range(1, cut + 1):
                thresholds.append(int(total * 2**_BITS))
                term = term * rate / n
                total += term
        self._thresholds = thresholds

    def take(self) -> int:
        """One count, from 0 to the cut."""
        uniform = secrets.randbits(_BITS)
        return sum(uniform >= threshold for threshold in self._thresholds)

    def __repr__(self) -> str:
        return f"PoissonCounts(cut={len(self._thresholds)})"
