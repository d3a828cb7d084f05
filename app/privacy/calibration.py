"""How much noise: Laplace scales b of an online query response session, as exact decimals, always
rounded up.

Scales are in units of the privacy unit gamma: multiply by gamma for counts. ``e0 = 1/b`` is the rate of
one round.

``rdp`` allows B hits at one Renyi order (``app.privacy.costs``); ``jt2012`` and ``gru2011`` reproduce the
constants of Jain, Thakurta 2012 and Gupta, Roth, Ullman 2011 for one and the same theorem, hundreds of
times larger. The optimum over all conditional releases is ``app.privacy.exact``.
"""

import math
from decimal import Decimal, localcontext
from fractions import Fraction

from app.bisection import least_integer_near
from app.privacy.conversion import (
    budget_estimate,
    checked_count,
    checked_delta,
    checked_epsilon,
    least_order,
    order_at,
    orders,
    rdp_budget,
)
from app.privacy.costs import (
    GREATEST_SCALE,
    LEAST_SCALE,
    ConditionalRelease,
    Release,
    checked_order,
    renyi_cost,
    search_cost,
)
from app.privacy.errors import InfiniteCost, InvalidBudget
from app.privacy.exactness import EXACT, QUANTUM, SEARCH, WORKING, Exact, ceil_to, to_decimal

#: Significant digits of a calibrated scale: the least decimal of so many digits that meets the budget is returned.
DIGITS = 15
_RELATIVE = Decimal("1e-17")


def rdp_scale(epsilon: Exact, delta: Exact, updates: int, release: Release = "single") -> Decimal:
    """Scale b (gamma = 1) at which ``updates`` hits are (epsilon, delta)-differentially private, at the
    best Renyi order.

    For a race, ``delta`` is what remains after the cut of its draws (``app.privacy.poisson``).

    Raises:
        InvalidBudget: for parameters outside their meaning, or a budget too small for any order.
    """
    order = best_order(epsilon, delta, updates, release, digits=4)
    return scale_for_cost(per_hit(rdp_budget(epsilon, delta, order), updates), order, release)


def per_hit(total: Decimal, updates: int) -> Decimal:
    """The amount that each of ``updates`` hits may cost so that all of them together stay within ``total``: rounded
    down to 1e-24.
    """
    quanta = int(total.scaleb(-QUANTUM.adjusted(), context=WORKING)) // checked_count(updates, "updates")
    return EXACT.multiply(Decimal(quanta), QUANTUM)


def best_order(epsilon: Exact, delta: Exact, updates: int, release: Release, *, digits: int) -> Decimal:
    """The order of the published grid (``digits`` significant digits of a-1) that needs the least noise
    for these hits.

    Raises:
        InvalidBudget: when no order leaves a positive budget.
    """
    exact_epsilon, exact_delta = checked_epsilon(epsilon), checked_delta(delta)
    checked_count(updates, "updates")

    def scale(order: Decimal) -> Decimal | None:
        budget = budget_estimate(exact_epsilon, exact_delta, order, SEARCH)
        if budget <= QUANTUM * updates:
            return None
        return SEARCH.divide(Decimal(1), _rate_for(SEARCH.divide(budget, Decimal(updates)), order, release))

    found = least_order(scale, digits)
    if found is None or rdp_budget(epsilon, delta, found[0]) < QUANTUM * updates:
        least = order_at(orders(digits) - 1, digits)
        raise InvalidBudget(
            f"no Renyi order up to {least} leaves a budget for epsilon {epsilon} and delta {delta} "
            f"over {updates} updates: raise epsilon or delta, or allow fewer updates"
        )
    return found[0]


def scale_for_cost(cost_per_hit: Decimal, order: Decimal, release: Release) -> Decimal:
    """The least scale b of 15 significant digits with `renyi_cost(ConditionalRelease(b, release), order)
    <= cost_per_hit`.

    Never below 1/64 of the privacy unit. The rounded cost is checked exactly at the scale returned.

    Raises:
        InvalidBudget: for a cost that is not positive, or so small that no scale up to 1e24 meets it.
    """
    checked_order(order)
    if not isinstance(cost_per_hit, Decimal) or not cost_per_hit.is_finite() or cost_per_hit < QUANTUM:
        raise InvalidBudget("a hit must be allowed to cost at least 1e-24: raise epsilon, or allow fewer updates")
    estimate = SEARCH.divide(Decimal(1), _rate_for(cost_per_hit, order, release))
    unit = Decimal(1).scaleb(estimate.adjusted() - DIGITS + 1)
    least = math.ceil(LEAST_SCALE / Fraction(unit))

    def meets(count: int) -> bool:
        scale = Fraction(count) * Fraction(unit)
        if scale > GREATEST_SCALE:
            raise InvalidBudget(
                "no scale up to 1e24 privacy units costs so little: raise epsilon, or allow fewer updates"
            )
        try:
            return renyi_cost(ConditionalRelease(scale, release), order) <= cost_per_hit
        except InfiniteCost:
            return False

    guess = max(least, math.ceil(SEARCH.divide(estimate, unit)))
    count = least_integer_near(meets, guess, least, math.floor(GREATEST_SCALE / Fraction(unit)) + 1)
    assert count is not None, "the condition refuses what is beyond the greatest scale"
    return SEARCH.multiply(Decimal(count), unit)


def _rate_for(cost: Decimal, order: Decimal, release: Release) -> Decimal:
    """The rate e0 whose unrounded cost is ``cost``, to 17 digits, from below; at most 64 (the
    cost rises with e0)."""
    with localcontext(SEARCH):
        most, two = 1 / to_decimal(LEAST_SCALE, SEARCH), Decimal(2)
        # The cost is about a e0^2 (single) or a e0^2/2 (race): a start, doubled or halved until it
        # brackets.
        high = min(most, ((two if release == "race" else 1) * cost / order).sqrt())
        while high < most and search_cost(high, order, release) <= cost:
            high = min(most, two * high)
        if search_cost(high, order, release) <= cost:
            return high
        low = high / two
        while search_cost(low, order, release) > cost:
            high, low = low, low / two
        # False position, as the cost is smooth; an end that stays where it is counts for half (Illinois). Never nearer
        # to an end than half of what is allowed, so that the other end follows.
        below, above = (search_cost(end, order, release) - cost for end in (low, high))
        last = 0
        while high - low > _RELATIVE * high:
            if above.is_finite():
                step = _RELATIVE * high / two
                middle = low - below * (high - low) / (above - below)
                middle = min(max(middle, low + step), high - step)
            else:
                middle = (low + high) / two
            found = search_cost(middle, order, release) - cost
            if found <= 0:
                low, below, above, last = middle, found, above / two if last < 0 else above, -1
            else:
                high, above, below, last = middle, found, below / two if last > 0 else below, 1
        return low


def jt2012_scale(epsilon: Exact, delta: Exact, updates: int) -> Decimal:
    """b = 100 sqrt(B) ln(4/delta)/epsilon (Jain, Thakurta 2012), rounded up to 15 significant digits."""
    return _published_scale(100, epsilon, delta, updates)


def gru2011_scale(epsilon: Exact, delta: Exact, updates: int) -> Decimal:
    """b = 1000 sqrt(B) ln(4/delta)/epsilon (Gupta, Roth, Ullman 2011), rounded up to 15 significant
    digits."""
    return _published_scale(1000, epsilon, delta, updates)


def _published_scale(constant: int, epsilon: Exact, delta: Exact, updates: int) -> Decimal:
    """constant*sqrt(B)*ln(4/delta)/epsilon: in 100 digits within 1e-97 relatively, 1e-60 of which is
    added before rounding."""
    rate, tail = checked_epsilon(epsilon), 4 / checked_delta(delta)
    with localcontext(WORKING):
        root = Decimal(checked_count(updates, "updates")).sqrt()
        value = constant * root * to_decimal(tail).ln() / to_decimal(rate) * (1 + Decimal("1e-60"))
    return ceil_to(value, Decimal(1).scaleb(value.adjusted() - DIGITS + 1))
