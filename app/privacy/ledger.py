"""The arithmetic of a data set's ledger: exact amounts at one Renyi order, rounded
against the spender.

A budget (epsilon, delta) and one order a* are fixed at registration; every mechanism on the data set
pays its Renyi divergence at a*, additively, whoever asked. The order is never chosen afterwards: with
adaptively chosen parameters that would be invalid. Amounts are multiples of 1e-24 and their sums are
exact, so ``spent + reserved <= total`` is a statement about integers. Nothing here remembers: an ``Account``
is a value, and every movement returns a new one or refuses.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction

from app.privacy.calibration import best_order
from app.privacy.conversion import checked_delta, checked_epsilon, rdp_budget
from app.privacy.costs import checked_order
from app.privacy.errors import InsufficientBudget, InvalidBudget
from app.privacy.exactness import EXACT, QUANTUM, Exact, ceil_to, floor_to

#: The fixed order minimises the noise of one session that spends the whole budget in so many updates.
REFERENCE_UPDATES = 100
ORDER_DIGITS = 2
#: Part of delta kept for cutting the Poisson draws of races (``app.privacy.poisson``); the ledger uses what remains.
SET_ASIDE = Fraction(1, 1000)
#: Beyond it a budget protects nobody; up to it every amount has at most 28 digits, the default decimal precision.
GREATEST_EPSILON = 1000
#: Grid of epsilons derived for display; they are rounded up to it.
SHOWN = Decimal("1e-12")


def amount(value: Decimal) -> Decimal:
    """The value, if it is an amount: a finite Decimal, at least 0, a multiple of 1e-24.

    Raises:
        InvalidBudget: otherwise.
    """
    if not isinstance(value, Decimal) or not value.is_finite() or value < 0:
        raise InvalidBudget("an amount is a finite Decimal, at least 0")
    if Fraction(value) % Fraction(QUANTUM):
        raise InvalidBudget("an amount is a multiple of 1e-24")
    return value


@dataclass(frozen=True, slots=True)
class Budget:
    """What a data set may spend, fixed at registration.

    Attributes:
        epsilon, delta: the guarantee over everything that is ever computed from the data set.
        order: the Renyi order all costs are counted at.
        total: R, the Renyi divergence at ``order`` that may be spent; never above what the guarantee allows.
    """

    epsilon: Decimal
    delta: Decimal
    order: Decimal
    total: Decimal

    def __post_init__(self) -> None:
        _checked_decimal(self.epsilon, "epsilon")
        _checked_decimal(self.delta, "delta")
        checked_order(self.order)
        allowed = _total(self.epsilon, self.delta, self.order)
        if amount(self.total) > allowed:
            raise InvalidBudget(f"a total of {self.total} passes the {allowed} that the guarantee allows at this order")
        if self.total == 0:
            raise InvalidBudget("nothing can be spent at this order: raise epsilon or delta")

    @classmethod
    def of(cls, epsilon: Decimal, delta: Decimal) -> "Budget":
        """The budget for a guarantee: a thousandth of delta set aside, the order chosen, R rounded down.

        The order is that of the published grid (``conversion.order_at``, two digits) with the least
        Laplace noise for spending everything in 100 updates of one session; it depends on (epsilon,
        delta) alone.

        Raises:
            InvalidBudget: unless 0 < epsilon <= 1000 and 1e-1000 <= delta < 1, both finite Decimals, and
                some order leaves something to spend. The message says what to change.
        """
        _checked_decimal(epsilon, "epsilon")
        _checked_decimal(delta, "delta")
        order = best_order(epsilon, _kept(delta), REFERENCE_UPDATES, "single", digits=ORDER_DIGITS)
        return cls(epsilon, delta, order, _total(epsilon, delta, order))

    @property
    def set_aside(self) -> Fraction:
        """The part of delta that pays for cut race draws; the Renyi budget is converted with what remains."""
        return Fraction(self.delta) * SET_ASIDE

    def share(self, epsilon_session: Decimal) -> Decimal:
        """R * epsilon_session/epsilon, rounded down: shares whose epsilons add up to at most epsilon
        never pass R.

        Raises:
            InvalidBudget: for an epsilon that is not a positive finite Decimal, or whose share is less
                than 1e-24.
        """
        _checked_decimal(epsilon_session, "epsilon")
        part = floor_to(Fraction(self.total) * Fraction(epsilon_session) / Fraction(self.epsilon))
        if part == 0:
            raise InvalidBudget("this epsilon is too small a share of the data set's: raise it")
        return part

    def cap(self, epsilon: Decimal) -> Decimal:
        """R * epsilon/epsilon of the budget, rounded down: what somebody may hold who may hold so much epsilon."""
        return floor_to(Fraction(self.total) * Fraction(epsilon) / Fraction(self.epsilon))

    def epsilon_left(self, left: Decimal) -> Decimal:
        """epsilon * left/R, rounded down to 1e-12."""
        return floor_to(Fraction(self.epsilon) * Fraction(left) / Fraction(self.total), SHOWN)

    def spent_epsilon(self, spent: Decimal) -> Decimal:
        """epsilon * spent/R, rounded up to 1e-12 (never above epsilon while spent <= R)."""
        value = Fraction(self.epsilon) * Fraction(amount(spent)) / Fraction(self.total)
        shown = ceil_to(value, SHOWN)
        return min(shown, self.epsilon) if spent <= self.total else shown


def _kept(delta: Decimal) -> Fraction:
    return Fraction(delta) * (1 - SET_ASIDE)


def _total(epsilon: Decimal, delta: Decimal, order: Decimal) -> Decimal:
    return max(Decimal(0), rdp_budget(epsilon, _kept(delta), order))


def _checked_decimal(value: Exact, name: str) -> None:
    if not isinstance(value, Decimal):
        raise InvalidBudget(f"{name} must be a Decimal")
    (checked_delta if name == "delta" else checked_epsilon)(value)
    if name == "epsilon" and value > GREATEST_EPSILON:
        raise InvalidBudget(f"epsilon must be at most {GREATEST_EPSILON}: beyond it nothing is protected")


@dataclass(frozen=True, slots=True)
class Share:
    """What one session or release holds of an account: ``reserved`` is promised to it, ``spent`` it has used."""

    reserved: Decimal
    spent: Decimal = Decimal(0)

    def charge(self, cost: Decimal) -> "Share":
        """The share after something that costs so much.

        Raises:
            InsufficientBudget: when it does not hold so much.
        """
        if amount(cost) > self.reserved:
            raise InsufficientBudget(cost, self.reserved)
        return Share(EXACT.subtract(self.reserved, cost), EXACT.add(self.spent, cost))

    def give_back(self) -> "Share":
        """The share after its end: what it did not use is the account's again."""
        return Share(Decimal(0), self.spent)

    def forfeit(self) -> "Share":
        """The share after its end, where what it did not use counts as spent."""
        return self.charge(self.reserved)


@dataclass(frozen=True, slots=True)
class Account:
    """Where a data set stands: ``reserved`` is promised to sessions and releases, ``spent`` is gone; their sum never
    passes the total.

    Raises:
        InsufficientBudget: when built past the total.
        InvalidBudget: when built from something that is no amount.
    """

    budget: Budget
    reserved: Decimal = Decimal(0)
    spent: Decimal = Decimal(0)

    def __post_init__(self) -> None:
        used = EXACT.add(amount(self.reserved), amount(self.spent))
        if used > self.budget.total:
            raise InsufficientBudget(used, self.budget.total)

    @classmethod
    def over(cls, budget: Budget, shares: Iterable[tuple[Share, int]], forfeited: Decimal = Decimal(0)) -> "Account":
        """The account of these shares, so many of each, and of what was forfeited beside them.

        Raises:
            InsufficientBudget: when they pass the budget.
        """
        reserved, spent = Decimal(0), forfeited
        for share, number in shares:
            reserved = EXACT.fma(share.reserved, number, reserved)
            spent = EXACT.fma(share.spent, number, spent)
        return cls(budget, reserved, spent)

    @property
    def used(self) -> Decimal:
        """What is reserved or spent."""
        return EXACT.add(self.reserved, self.spent)

    @property
    def remaining(self) -> Decimal:
        """What may still be reserved."""
        return EXACT.subtract(self.budget.total, self.used)

    @property
    def remaining_epsilon(self) -> Decimal:
        """What is left of epsilon beside the spent and the reserved one as they are shown."""
        shown = EXACT.add(self.budget.spent_epsilon(self.spent), self.budget.spent_epsilon(self.reserved))
        return max(Decimal(0), EXACT.subtract(self.budget.epsilon, shown))

    def check_cap(self, cap: Decimal, requested: Decimal) -> None:
        """Refuse what would pass a cap on the sum of reserved and spent.

        Raises:
            InsufficientBudget: with what is left below the cap.
        """
        if EXACT.add(self.used, requested) > cap:
            raise InsufficientBudget(requested, max(Decimal(0), EXACT.subtract(cap, self.used)))

    def reserve(self, requested: Decimal) -> "Account":
        """Promise an amount to a session or release.

        Raises:
            InsufficientBudget: when it passes what remains.
        """
        if amount(requested) > self.remaining:
            raise InsufficientBudget(requested, self.remaining)
        return replace(self, reserved=EXACT.add(self.reserved, requested))

    def charge(self, share: Share, cost: Decimal) -> "Account":
        """The account after one of its shares spent so much.

        Raises:
            InsufficientBudget: when the share does not hold so much, or the account does not hold the share.
        """
        return self._after(share, share.charge(cost))

    def give_back(self, share: Share) -> "Account":
        """The account after the end of one of its shares.

        Raises:
            InsufficientBudget: when the account does not hold the share.
        """
        return self._after(share, share.give_back())

    def _after(self, share: Share, moved: Share) -> "Account":
        """The account after a share of it moved."""
        if amount(share.reserved) > self.reserved:
            raise InsufficientBudget(share.reserved, self.reserved)
        reserved = EXACT.add(EXACT.subtract(self.reserved, share.reserved), moved.reserved)
        return replace(self, reserved=reserved, spent=EXACT.add(self.spent, EXACT.subtract(moved.spent, share.spent)))
