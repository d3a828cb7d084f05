"""Released bounds: masses and norms of the data that a construction needs and a session may buy.

Each is computed from the private array once, on a public grid, and released with discrete Laplace noise, raised by the
noise's tail so that it bounds the true one. A mass is an exact integer. A norm is not, so its sensitivity is gamma in
grid units and two more:

- l_p, group and Schatten norms give 1 to a unit vector, so by the triangle inequality neighbours, gamma apart in
  L1, have norms at most gamma apart. (The full matrix of an undirected graph holds each pair twice: there a group
  or Schatten norm moves by ``2^(1/p) gamma``.)
- rounding to the grid moves each of the two by half a unit;
- float64 errors move each by half a unit at most: the grid is coarsened until a bound on them from public sizes is
  below that.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction

from app.constructions.base import PublicFacts
from app.constructions.mirror_descent import norm_bound
from app.curator.dataset import FACT_FAILURE
from app.geometry.norms import Norm
from app.privacy.ledger import Amounts
from app.spaces.counts import AllEntries, Contraction, ExactCounts
from app.spaces.space import Space


@dataclass(frozen=True)
class Purchase:
    """A bound to be released at opening, as a pure-epsilon discrete Laplace answer.

    Attributes:
        fact: ``mass``, or the name of a norm.
        epsilon: of the answer.
        cost: its Renyi divergence at the ledger's order, exact.
        bits: of the grid it is measured on.
        sensitivity: in units of 2^-bits counts.
    """

    fact: str
    epsilon: Decimal
    cost: Decimal
    bits: int
    sensitivity: int

    @property
    def price(self) -> Amounts:
        """Its cost."""
        return Amounts(self.cost, self.epsilon)

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


#: Norms are rounded to 2^-10 counts, or a coarser grid where float64 is not good to that.
NORM_BITS = 10
#: The most steps for singular values at opening, some seconds; a matrix needs rows * columns * min(rows, columns).
MOST_STEPS = 2**34
_ROUNDOFF = 2.0**-53


def unmeasurable(space: Space, fact: str) -> str | None:
    """Why a fact cannot be measured at this size; None where it can."""
    if fact == "mass":
        return None
    norm = Norm.parse(fact)
    if norm.family == "schatten" and math.prod(space.shape) * min(space.shape) > MOST_STEPS:
        return (
            f"the singular values of a matrix of {space.shape[0]:,} by {space.shape[1]:,} are too many to be measured: "
            'leave ball_p out, or give "none"'
        )
    if _norm_bits(space, norm) < 0:
        return f"float64 cannot tell norms of data of this size to a count: {fact} is not measured"
    return None


def grid_of(space: Space, fact: str) -> tuple[int, int]:
    """(bits, sensitivity in units of 2^-bits) of a fact that is not :func:`unmeasurable`."""
    if fact == "mass":
        return space.data_bits, int(space.unit * (1 << space.data_bits))
    norm = Norm.parse(fact)
    bits = _norm_bits(space, norm)
    doubled = 2 ** (1 / norm.p) * (1 + 2.0**-40) if space.symmetric and norm.family != "lp" else 1
    return bits, math.ceil(space.unit * Fraction(doubled) * (1 << bits)) + 2


def _norm_bits(space: Space, norm: Norm) -> int:
    """Bits of the grid on which a norm is measured; negative where float64 does not tell it to a count."""
    return min(NORM_BITS, math.floor(-1 - math.log2(_float_error(space, norm))))


def _float_error(space: Space, norm: Norm) -> float:
    """A bound from public sizes on how far a norm measured in float64 is off, in counts.

    Entries are exact. Powers and roots are good to a few units in the last place. Sums of m terms are made
    pairwise in blocks (a chain of 19 + log2 m roundings), those within a row one after another. The error of
    singular values is that of a backward stable decomposition, a modest multiple of (rows + columns) units of the
    largest, each of which enters the norm.
    """
    largest = norm_bound(space, PublicFacts(float(space.capacity)), norm)
    assert largest is not None
    terms = 64.0 + math.log2(max(space.cells, 2))
    if norm.family == "group":
        terms += max(space.shape)
    error = largest * terms
    if norm.family == "schatten":
        square = space.norm2sq_bound(float(space.capacity))
        assert square is not None
        copies = 2 if space.symmetric else 1
        error += 16 * sum(space.shape) * math.sqrt(copies * square) * min(space.shape) ** (1 / norm.p)
    return error * _ROUNDOFF


def measure(space: Space, data: ExactCounts, fact: str) -> int:
    """The private fact in units of its grid: a mass exactly, a norm rounded."""
    if fact == "mass":
        units = int(next(data.tell([Contraction((None,) * len(space.shape))])))
        return units // 2 if space.symmetric else units
    norm = Norm.parse(fact)
    copies = 2 if space.symmetric and norm.family == "lp" else 1
    array = next(data.tell([AllEntries()]))
    return round(math.ldexp(norm.of(array, copies), grid_of(space, fact)[0] - space.data_bits))
