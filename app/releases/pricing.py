"""What measurements cost, exactly."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from functools import lru_cache

from app.evidence.measurements import NoiseKind
from app.evidence.strategies import Strategy
from app.privacy.costs import DiscreteGaussianAnswer, DiscreteLaplaceAnswer
from app.privacy.ledger import Amounts, total


def price_of(strategy: Strategy, kind: NoiseKind, scale: Fraction, order: Decimal, gamma: int) -> Amounts:
    """What a measurement with noise of this scale costs in both sums of a ledger of this order.

    Neighbours differ in at most gamma records: a part moves by at most gamma times what one record moves it by, in L1
    and in L2, by the triangle inequality. The parts compose (docs/privacy.md, 9.4 and 9.5).
    """
    if kind == "gaussian":
        return _amounts(kind, scale, gamma**2 * sum(moved.squared for moved in strategy.moved), order)
    return total(_amounts(kind, scale, gamma * moved.absolute, order) for moved in strategy.moved)


@lru_cache(maxsize=256)
def _amounts(kind: NoiseKind, scale: Fraction, moved: int, order: Decimal) -> Amounts:
    """What one sum or many of the same sensitivity cost; an opening buys very many alike."""
    event = DiscreteGaussianAnswer(scale, moved) if kind == "gaussian" else DiscreteLaplaceAnswer(scale, moved)
    return Amounts.of(event, order)
