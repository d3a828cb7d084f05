"""Between Renyi differential privacy at one order and (epsilon, delta)-differential privacy.

Canonne, Kamath, Steinke 2020, proposition 12: RDP(a) <= rho implies (epsilon, delta) with

    epsilon = max(0, rho + ln(1 - 1/a) - (ln delta + ln a)/(a - 1)).

Error bound: ln delta, ln a and ln(1-1/a) in 100 digits err by less than 1e-70 for the delta and orders
allowed, divided by a-1 >= 1e-3 less than 1e-66: far below the 1e-30 that directed rounding adds.
"""

from collections.abc import Callable, Sequence
from decimal import Context, Decimal, localcontext
from fractions import Fraction
from functools import cache

from app.privacy.costs import PrivacyEvent, checked_order, renyi_cost
from app.privacy.errors import InfiniteCost, InvalidBudget
from app.privacy.exactness import EXACT, QUANTUM, WORKING, Exact, exact, round_down, round_up, to_decimal

_LEAST_DECADE, _DECADES = -3, 13
#: Digits of the orders that ``epsilon_alone`` chooses from.
_FINE = 3
#: It looks at every 90th of them first: ten a decade.
_COARSE = 90


def checked_epsilon(epsilon: Exact) -> Fraction:
    """Epsilon as a fraction; ``InvalidBudget`` unless it is exact, finite, positive and at most 1e6."""
    return _checked(epsilon, "epsilon", Fraction(10**6))


def checked_delta(delta: Exact) -> Fraction:
    """Delta as a fraction; ``InvalidBudget`` unless it is exact and 1e-1000 <= delta < 1."""
    number = _checked(delta, "delta", Fraction(1))
    if number == 1 or number < Fraction(1, 10**1000):
        raise InvalidBudget("delta must lie between 1e-1000 and 1, both far from being useful; 1e-6 to 1e-12 is usual")
    return number


def checked_count(count: int, name: str) -> int:
    """The count itself; ``InvalidBudget`` unless it is an int from 1 to 1e15."""
    if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= 10**15:
        raise InvalidBudget(f"{name} must be an integer from 1 to 1e15")
    return count


def _checked(value: Exact, name: str, most: Fraction) -> Fraction:
    try:
        number = exact(value, name)
    except (TypeError, ValueError) as error:
        raise InvalidBudget(str(error)) from None
    if not 0 < number <= most:
        raise InvalidBudget(f"{name} must be positive and at most {most}")
    return number


def rdp_budget(epsilon: Exact, delta: Exact, order: Decimal) -> Decimal:
    """Largest RDP at ``order`` that is still (epsilon, delta)-differentially private, rounded down to 1e-24.

    R = epsilon - ln(1-1/a) + (ln delta + ln a)/(a-1). Zero or negative where the order cannot express
    the guarantee.
    """
    checked_epsilon(epsilon)
    checked_delta(delta)
    return round_down(budget_estimate(Fraction(epsilon), Fraction(delta), checked_order(order), WORKING))


def budget_estimate(epsilon: Fraction, delta: Fraction, order: Decimal, context: Context) -> Decimal:
    """``rdp_budget`` in the precision of ``context``, unrounded."""
    with localcontext(context):
        return to_decimal(epsilon, context) - _conversion(delta, order, context)


def epsilon_of(rdp: Exact, delta: Exact, order: Decimal) -> Decimal:
    """Epsilon that a spent RDP at ``order`` guarantees together with ``delta``, rounded up to 1e-24, at
    least 0.

    Raises:
        InvalidBudget: for a negative RDP, a delta outside (0, 1), an order outside [1.001, 1e12].
    """
    checked_delta(delta)
    spent = exact(rdp, "rdp")
    if spent < 0:
        raise InvalidBudget("a spent divergence is not negative")
    with localcontext(WORKING):
        value = to_decimal(spent) + _conversion(Fraction(delta), checked_order(order), WORKING)
    return max(Decimal(0), round_up(value))


def _conversion(delta: Fraction, order: Decimal, context: Context) -> Decimal:
    """ln(1 - 1/a) - (ln delta + ln a)/(a - 1): what epsilon has beyond the divergence."""
    with localcontext(context):
        excess = order - 1
        return (excess / order).ln() - (to_decimal(delta, context).ln() + order.ln()) / excess


def orders(digits: int) -> int:
    """How many orders ``order_at`` publishes at this resolution."""
    return _DECADES * _decade(digits)


def _decade(digits: int) -> int:
    return 9 * int(10 ** (digits - 1))


@cache
def order_at(index: int, digits: int) -> Decimal:
    """The published grid of Renyi orders: a - 1 runs over the decimals of ``digits`` significant digits
    from 1e-3 to 1e10.

    With two digits: 1.0010, 1.0011, ..., 1.0099, 1.010, ..., 10.9, 11, 12, ..., 100, 101, 111, 121, ...
    """
    decade, place = divmod(index, _decade(digits))
    excess = Decimal(10 ** (digits - 1) + place).scaleb(decade + _LEAST_DECADE - digits + 1)
    return EXACT.add(Decimal(1), excess)


def least_order(
    objective: Callable[[Decimal], Decimal | None], digits: int, between: tuple[int, int] | None = None
) -> tuple[Decimal, Decimal] | None:
    """The order on the published grid with the least objective, and that objective.

    Args:
        objective: falls, then rises along the grid; ``None`` stands for "too low an order". Were it not
            so, the result would be a worse order, never a wrong guarantee.
        digits: resolution of the grid.
        between: first and last index searched; the whole grid by default.

    Returns:
        (order, objective), or ``None`` when every order is too low. Of equal values the lower order.
    """
    low, high = between or (0, orders(digits) - 1)
    if objective(order_at(high, digits)) is None:
        return None
    while low < high:
        middle = (low + high) // 2
        here, there = objective(order_at(middle, digits)), objective(order_at(middle + 1, digits))
        if here is None or (there is not None and there < here):
            low = middle + 1
        else:
            high = middle
    best = order_at(low, digits)
    value = objective(best)
    return None if value is None else (best, value)


def epsilon_alone(events: Sequence[tuple[PrivacyEvent, int]], delta: Exact) -> tuple[Decimal, Decimal]:
    """(epsilon, order): what these events together guarantee with ``delta`` at their own best order,
    epsilon rounded up.

    Valid for events whose parameters and counts were fixed before the first of them ran: then every order
    bounds the same transcript, and the best may be chosen afterwards. What adaptively chosen parameters
    spent is priced at one order fixed beforehand (``ledger.Budget.spent_epsilon``). A hit of a session
    counts its most updates.

    Args:
        events: how often each may happen beside it.
        delta: of the guarantee.

    Raises:
        InvalidBudget: for a delta outside (0, 1) or a negative count.
    """
    checked_delta(delta)
    for _, count in events:
        if isinstance(count, bool) or not isinstance(count, int) or count < 0:
            raise InvalidBudget("a count of steps is an integer, at least 0")

    def total(order: Decimal) -> Decimal:
        spent = Decimal(0)
        try:
            for event, count in events:
                spent = EXACT.add(spent, EXACT.multiply(Decimal(count), renyi_cost(event, order)))
        except InfiniteCost:
            return Decimal("Infinity")
        return max(epsilon_of(spent, delta, order), QUANTUM)

    # Several minima are possible (a pure step's cost stops rising): look everywhere before looking closely.
    last = orders(_FINE) - 1
    best = min(range(0, last + 1, _COARSE), key=lambda index: total(order_at(index, _FINE)))
    found = least_order(total, _FINE, (max(0, best - _COARSE), min(last, best + _COARSE)))
    if found is None or not found[1].is_finite():
        raise InfiniteCost("these mechanisms have no finite cost at any order: use larger scales")
    return found[1], found[0]
