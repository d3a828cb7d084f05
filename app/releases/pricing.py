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

    A record is in one cell of each part, and neighbours differ in at most gamma records: a part moves by gamma times
    what one record moves it by, in L1, and by as much in L2 where all of them are in one cell. The parts compose
    (docs/privacy.md, 9.4).
    """
    moved = [gamma * largest for largest in strategy.largest]
    if kind == "gaussian":
        return _amounts(kind, scale, sum(by**2 for by in moved), order)
    return total(_amounts(kind, scale, by, order) for by in moved)


@lru_cache(maxsize=256)
def _amounts(kind: NoiseKind, scale: Fraction, moved: int, order: Decimal) -> Amounts:
    """What one sum or many of the same sensitivity cost; an opening buys very many alike."""
    event = DiscreteGaussianAnswer(scale, moved) if kind == "gaussian" else DiscreteLaplaceAnswer(scale, moved)
    return Amounts.of(event, order)
