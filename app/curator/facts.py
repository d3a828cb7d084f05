"""Facts about the data that a construction needs and a session may buy: masses, norms.

Each is computed from the private array once, on a public grid, and released with discrete Laplace noise padded
upward by its tail. Neighbours are ``gamma`` apart in L1, so every norm that a unit vector has length 1 in moves by
at most ``gamma``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction

from app.curator.dataset import FACT_FAILURE
from app.spaces.space import Space
from app.spaces.tensor import Tensor


@dataclass(frozen=True)
class Purchase:
    """A fact to be bought at opening, as a pure-epsilon discrete Laplace answer.

    ``sensitivity`` is in units of 2^-bits counts; ``cost`` is exact at the ledger's order.
    """

    fact: str
    epsilon: Decimal
    cost: Decimal
    bits: int
    sensitivity: int

    @property
    def scale_units(self) -> Fraction:
        """Laplace scale on the fact's grid."""
        return self.sensitivity / Fraction(self.epsilon)

    @property
    def noise_scale(self) -> float:
        """Laplace scale in counts."""
        return math.ldexp(float(self.scale_units), -self.bits)

    def padded(self, noisy: int) -> float:
        """A noisy value in grid units as counts, raised so that it lies above the true one but for FACT_FAILURE."""
        raised = noisy + math.ceil(float(self.scale_units) * math.log(1 / FACT_FAILURE))
        return float(max(1, math.ceil(math.ldexp(raised, -self.bits))))


def grid_of(space: Space, fact: str) -> tuple[int, int]:
    """(bits, sensitivity in units of 2^-bits) of a fact."""
    assert fact == "mass"
    return space.data_bits, int(space.unit * (1 << space.data_bits))


def measure(space: Space, data: Tensor, fact: str) -> int:
    """The private fact, exact, in units of its grid."""
    assert fact == "mass"
    units = int(data.contract((None,) * len(space.shape)))
    return units // 2 if space.symmetric else units
