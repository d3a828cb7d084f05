"""Designs: what a release measures, from what is public alone.

A design names measurements with their noise. It reads the workload, the sizes of the attributes, and what the release
may pay; never data. What it costs is told exactly by whoever charges for it (``price``), so that all measurements
together stay within what is held.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import ROUND_CEILING, Context, Decimal

from app.evidence.measurements import Marginal, NoiseKind
from app.evidence.policy import Buy
from app.evidence.strategies import Strategy
from app.privacy.errors import PrivacyError
from app.privacy.ledger import Amounts, total

#: Scales have so many digits.
_UP = Context(prec=4, rounding=ROUND_CEILING)
#: No noise of a smaller scale is bought, in whole counts.
LEAST_SCALE = Decimal("0.125")

#: What a measurement costs.
Price = Callable[[Strategy, NoiseKind, Decimal], Amounts]


@dataclass(frozen=True)
class Means:
    """What a release may pay from.

    Attributes:
        order: of the ledger, its Renyi order.
        holds: the amounts; with a pure one all noise must be pure, and that is what pays.
        gamma: by how much the counts of all cells move between neighbours.
        price: of a measurement.
    """

    order: Decimal
    holds: Amounts
    gamma: int
    price: Price

    @property
    def kind(self) -> NoiseKind:
        """The law of the noise that serves."""
        return "gaussian" if self.holds.pure is None else "laplace"

    def cost(self, buys: Sequence[Buy]) -> Amounts:
        """What measurements cost together."""
        return total(self.price(buy.strategy, buy.kind, buy.scale) for buy in buys)

    def affords(self, buys: Sequence[Buy]) -> bool:
        """Whether measurements can be paid."""
        cost = self.cost(buys)
        return cost.within(self.holds) == cost


class Unaffordable(PrivacyError):
    """No noise that is offered is so large, or so small, as what may be paid asks for."""


def alike(strategies: Sequence[Strategy], means: Means) -> tuple[Buy, ...]:
    """Measurements of these strategies, all with the same noise, the least that can be paid.

    Raises:
        Unaffordable: when what may be paid would buy less noise than is offered, or more than can be drawn.
    """
    moved = [each for strategy in strategies for each in strategy.moved]
    if means.holds.pure is None:
        squares = means.gamma**2 * sum(each.squared for each in moved)
        scale = math.sqrt(float(means.order) * squares / (2 * float(means.holds.renyi)))
    else:
        scale = means.gamma * sum(each.absolute for each in moved) / float(means.holds.pure)
    return fitted(strategies, [1.0] * len(strategies), scale, means)


def fitted(strategies: Sequence[Strategy], ratios: Sequence[float], scale: float, means: Means) -> tuple[Buy, ...]:
    """Measurements with noise of these ratios to one another, about ``scale`` times them: raised until it can be paid.

    Raises:
        Unaffordable: when no noise that can be drawn is cheap enough.
    """
    for _ in range(64):
        if not 0 < scale * max(ratios) < 1e15:
            break
        scales = [max(LEAST_SCALE, _UP.create_decimal_from_float(scale * ratio)) for ratio in ratios]
        buys = tuple(Buy(strategy, means.kind, each) for strategy, each in zip(strategies, scales, strict=True))
        if means.affords(buys):
            return buys
        scale *= 1 + 1e-4
    raise Unaffordable("so small a share does not pay for so many measurements: raise epsilon, or ask for less")


def whole(sizes: Sequence[int]) -> Strategy:
    """Every cell of a table by itself."""
    return Strategy.of(Marginal.of(sizes, dict.fromkeys(a for a, n in enumerate(sizes) if n > 1)))
