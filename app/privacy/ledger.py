"""The arithmetic of a data set's ledger: exact amounts in two sums, rounded against the spender.

A budget (epsilon, delta) and one order a* are fixed at registration; every mechanism on the data set
pays its Renyi divergence at a*, additively, whoever asked. The order is never chosen afterwards: with
adaptively chosen parameters that would be invalid. Beside it, sessions whose noise is all pure pay the
epsilon of pure differential privacy that each of their releases has. With R the total of the first sum,
at every moment

    reserved + spent <= R,    or    all noise ever taken is pure, and pure reserved + pure spent <= epsilon.

Either keeps the guarantee (docs/privacy.md, 8.1). What is not pure counts from the opening of its session
on, whether or not it is ever charged: a miss is free in the first sum, and tells something all the same.

Amounts are multiples of 1e-24 and their sums are exact, so all this is said of integers. Nothing here
remembers: an ``Account`` is a value, and every movement returns a new one or refuses.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction
from typing import Any, Literal, Self

from app.privacy.calibration import best_order
from app.privacy.conversion import checked_delta, checked_epsilon, rdp_budget
from app.privacy.costs import PrivacyEvent, checked_order, pure_cost, renyi_cost
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
    if abs(value.adjusted()) > EXACT.prec:  # as a fraction it might take all memory there is
        raise InvalidBudget("an amount is of ordinary size")
    if Fraction(value) % Fraction(QUANTUM):
        raise InvalidBudget("an amount is a multiple of 1e-24")
    return value


@dataclass(frozen=True, slots=True)
class Budget:
    """The budget of a data set, fixed at registration.

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

    def alone(self, cap: Decimal) -> Decimal:
        """The epsilon that the answers of somebody keep, with delta, who may hold so much, were they all that is ever
        computed from the data: epsilon - (R - R * cap/epsilon), and no less than the cap; rounded up to 1e-12. Source:
        docs/privacy.md, proposition 7a.
        """
        if not cap:
            return Decimal(0)
        return max(cap, self.rounded_up(EXACT.subtract(self.epsilon, EXACT.subtract(self.total, self.cap(cap)))))

    def epsilon_left(self, left: Decimal) -> Decimal:
        """epsilon * left/R, rounded down to 1e-12."""
        return floor_to(Fraction(self.epsilon) * Fraction(left) / Fraction(self.total), SHOWN)

    def spent_epsilon(self, spent: Decimal) -> Decimal:
        """epsilon * spent/R, rounded up to 1e-12 (never above epsilon while spent <= R)."""
        return self.rounded_up(Fraction(self.epsilon) * Fraction(amount(spent)) / Fraction(self.total))

    def rounded_up(self, epsilon: Exact) -> Decimal:
        """A part of epsilon, rounded up to 1e-12; never above epsilon unless the part is."""
        shown = ceil_to(epsilon, SHOWN)
        return min(shown, self.epsilon) if epsilon <= self.epsilon else shown


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
class Amounts:
    """A cost or a holding, in both sums of a ledger.

    Attributes:
        renyi: Renyi divergence at the ledger's order.
        pure: epsilon of pure differential privacy; None where not all of its noise is pure.
    """

    renyi: Decimal
    pure: Decimal | None = None

    @classmethod
    def of(cls, event: PrivacyEvent, order: Decimal) -> Self:
        """The cost of an event, rounded up.

        Raises:
            InfiniteCost: when that is infinite at this order; the event must then be refused.
        """
        return cls(renyi_cost(event, order), pure_cost(event))

    @classmethod
    def none(cls, *, pure: bool) -> Self:
        """Nothing, of what is pure or of what is not."""
        return cls(Decimal(0), Decimal(0) if pure else None)

    def plus(self, other: "Amounts") -> "Amounts":
        """Both together: pure only where both are."""
        pure = None if self.pure is None or other.pure is None else EXACT.add(self.pure, other.pure)
        return Amounts(EXACT.add(self.renyi, other.renyi), pure)

    def minus(self, cost: "Amounts") -> "Amounts":
        """The remainder after something that costs so much.

        Raises:
            InsufficientBudget: when this is less.
            InvalidBudget: when the cost is none, or is not pure where this is.
        """
        left = _left(self.renyi, cost.renyi)
        if self.pure is None:
            return Amounts(left)
        if cost.pure is None:
            raise InvalidBudget("what was opened as pure pays for pure noise alone")
        return Amounts(left, _left(self.pure, cost.pure))

    def within(self, held: "Amounts") -> "Amounts":
        """As much of this as is held."""
        pure = None if self.pure is None else min(self.pure, self.pure if held.pure is None else held.pure)
        return Amounts(min(self.renyi, held.renyi), pure)

    def document(self) -> dict[str, str | None]:
        """As JSON."""
        return {"pure": None if self.pure is None else str(self.pure), "renyi": str(self.renyi)}

    @classmethod
    def read(cls, document: Any) -> Self:
        """From JSON.

        Raises:
            KeyError, TypeError, ArithmeticError, InvalidBudget: when it is none.
        """
        pure, renyi = document["pure"], document["renyi"]
        if not isinstance(renyi, str) or not isinstance(pure, str | None) or len(document) != 2:
            raise TypeError("amounts are decimal strings")
        return cls(amount(Decimal(renyi)), None if pure is None else amount(Decimal(pure)))

    def times(self, number: int) -> "Amounts":
        """So many times as much."""
        many = Decimal(number)
        pure = None if self.pure is None else EXACT.multiply(self.pure, many)
        return Amounts(EXACT.multiply(self.renyi, many), pure)


def total(amounts: Iterable[Amounts]) -> Amounts:
    """All together; nothing, and pure, for none."""
    found = Amounts.none(pure=True)
    for each in amounts:
        found = found.plus(each)
    return found


def _left(held: Decimal, cost: Decimal) -> Decimal:
    if amount(cost) > held:
        raise InsufficientBudget(cost, held)
    return EXACT.subtract(held, cost)


@dataclass(frozen=True, slots=True)
class Share:
    """The part of an account that one session or release holds: ``reserved`` is promised to it, ``spent`` it has used.

    It is pure from its opening or not at all: then both amounts are.
    """

    reserved: Amounts
    spent: Amounts

    @classmethod
    def of(cls, reserved: Amounts) -> "Share":
        """A share of which nothing is spent."""
        return cls(reserved, Amounts.none(pure=reserved.pure is not None))

    def charge(self, cost: Amounts) -> "Share":
        """The share after something that costs so much.

        Raises:
            InsufficientBudget: when it does not hold so much.
            InvalidBudget: when the share is pure and the cost is not.
        """
        return Share(self.reserved.minus(cost), self.spent.plus(cost))

    def give_back(self) -> "Share":
        """The share after its end: what it did not use is the account's again."""
        return Share(Amounts.none(pure=self.reserved.pure is not None), self.spent)

    def forfeit(self) -> "Share":
        """The share after its end, where what it did not use counts as spent."""
        return self.charge(self.reserved)


#: What is free, and pure.
NOTHING = Amounts.none(pure=True)
#: The sum by which a budget, or a session's share of it, is counted.
Regime = Literal["renyi", "pure"]


@dataclass(frozen=True, slots=True)
class Epsilons:
    """Where a budget stands as it is shown: parts of its epsilon by one of its sums."""

    spent: Decimal
    reserved: Decimal
    remaining: Decimal


@dataclass(frozen=True, slots=True)
class Account:
    """Where a data set stands: ``reserved`` is promised to sessions and releases, ``spent`` is gone.

    Attributes:
        budget: of the data set.
        reserved, spent: Renyi divergence at the budget's order.
        pure_reserved, pure_spent: the epsilons of those that are pure.
        impure: whether noise that is not pure may ever have been taken.

    Raises:
        InsufficientBudget: when built past the total, and not pure within epsilon.
        InvalidBudget: when built from something that is no amount.
    """

    budget: Budget
    reserved: Decimal = Decimal(0)
    spent: Decimal = Decimal(0)
    pure_reserved: Decimal = Decimal(0)
    pure_spent: Decimal = Decimal(0)
    impure: bool = False

    def __post_init__(self) -> None:
        for each in (self.reserved, self.spent, self.pure_reserved, self.pure_spent):
            amount(each)
        if self.used <= self.budget.total:
            return
        if self.impure or self.pure_used > self.budget.epsilon:
            raise InsufficientBudget(self.used, self.budget.total)

    @classmethod
    def over(
        cls,
        budget: Budget,
        shares: Iterable[tuple[Share, int]],
        forfeited: Amounts = NOTHING,
        *,
        impure: bool = False,
    ) -> "Account":
        """The account of these shares, so many of each, and of what was forfeited beside them.

        Raises:
            InsufficientBudget: when they pass the budget.
        """
        reserved, spent = Decimal(0), forfeited.renyi
        pure_reserved, pure_spent = Decimal(0), forfeited.pure or Decimal(0)
        for share, number in shares:
            reserved = EXACT.fma(share.reserved.renyi, number, reserved)
            spent = EXACT.fma(share.spent.renyi, number, spent)
            pure_reserved = EXACT.fma(share.reserved.pure or 0, number, pure_reserved)
            pure_spent = EXACT.fma(share.spent.pure or 0, number, pure_spent)
        return cls(budget, reserved, spent, pure_reserved, pure_spent, impure)

    @property
    def used(self) -> Decimal:
        """The reserved and spent part of the total."""
        return EXACT.add(self.reserved, self.spent)

    @property
    def pure_used(self) -> Decimal:
        """The reserved and spent part of epsilon by what is pure."""
        return EXACT.add(self.pure_reserved, self.pure_spent)

    @property
    def remaining(self) -> Decimal:
        """The part of the total that may still be reserved, whatever the noise."""
        return max(Decimal(0), EXACT.subtract(self.budget.total, self.used))

    @property
    def pure_remaining(self) -> Decimal:
        """The part of epsilon that may still be reserved by what is pure, whatever the total."""
        return Decimal(0) if self.impure else max(Decimal(0), EXACT.subtract(self.budget.epsilon, self.pure_used))

    @property
    def regime(self) -> Regime:
        """The sum that is shown of the whole budget."""
        return self.regime_within(self.budget.epsilon)

    def regime_within(self, cap: Decimal) -> Regime:
        """The sum that is shown where so much epsilon may be used: the one of which the larger part is left; where as
        much is left of both, the one of which less is spent.

        A sum that is past its bound has less than nothing left, and the other one keeps the guarantee then; so what is
        shown as spent and reserved never passes epsilon. The pure sum says nothing once other noise was taken.
        """
        if self.impure:
            return "renyi"
        by_renyi, by_pure = (floor_to(self._left(regime, cap), SHOWN) for regime in ("renyi", "pure"))
        if by_renyi != by_pure:
            return "pure" if by_pure > by_renyi else "renyi"
        return "pure" if self.shown("pure", cap).spent < self.shown("renyi", cap).spent else "renyi"

    def shown(self, regime: Regime, cap: Decimal) -> Epsilons:
        """Where this stands by one of its sums, where so much epsilon may be used: what is spent and reserved rounded
        up to 1e-12, and what of the cap neither of them is; nothing is left of the pure sum once other noise was taken.
        """
        budget = self.budget
        if regime == "renyi":
            spent, reserved = budget.spent_epsilon(self.spent), budget.spent_epsilon(self.reserved)
        else:
            spent, reserved = budget.rounded_up(self.pure_spent), budget.rounded_up(self.pure_reserved)
        none = regime == "pure" and self.impure
        left = Fraction(0) if none else max(Fraction(0), Fraction(cap) - Fraction(spent) - Fraction(reserved))
        return Epsilons(spent, reserved, floor_to(left, SHOWN))

    def _left(self, regime: Regime, cap: Decimal) -> Fraction:
        """The part of a cap that is left by one of the sums; less than nothing where that is past it."""
        if regime == "pure":
            return Fraction(cap) - Fraction(self.pure_used)
        return Fraction(cap) - Fraction(self.budget.epsilon) * Fraction(self.used) / Fraction(self.budget.total)

    @property
    def all_spent(self) -> "Account":
        """The same, if all that is reserved were spent."""
        return Account(self.budget, Decimal(0), self.used, Decimal(0), self.pure_used, self.impure)

    @property
    def whole(self) -> Amounts | None:
        """The remainder of both sums, the pure one rounded down to 1e-12, where one pure session may take all of it;
        None where none may, as something is reserved, other noise was taken, or the total has more left.

        The price of that session may pass what is left of the total, so that nothing else could be opened beside it.
        """
        left = floor_to(self.pure_remaining, SHOWN)
        if self.reserved or self.pure_reserved or not left or left < self.budget.epsilon_left(self.remaining):
            return None
        return Amounts(self.remaining, left)

    def left_for(self, requested: Amounts, cap: Decimal) -> Decimal:
        """How much of a cap, an epsilon, something of this kind could have instead, rounded down to 1e-12."""
        regimes: tuple[Regime, ...] = ("renyi",) if self.impure or requested.pure is None else ("renyi", "pure")
        return max(Decimal(0), *(floor_to(self._left(regime, cap), SHOWN) for regime in regimes))

    def check_cap(self, cap: Decimal, requested: Amounts) -> None:
        """Refuse what would pass a cap, an epsilon, on what is reserved and spent; by either sum, as the whole is.

        Raises:
            InsufficientBudget: with what is left of the first sum below the cap.
        """
        most, needed = self.budget.cap(cap), EXACT.add(self.used, requested.renyi)
        if needed <= most:
            return
        if self.impure or requested.pure is None or EXACT.add(self.pure_used, requested.pure) > cap:
            raise InsufficientBudget(requested.renyi, max(Decimal(0), EXACT.subtract(most, self.used)))

    def reserve(self, requested: Amounts) -> "Account":
        """Promise amounts to a session or release. From the first one on that is not pure the account is impure.

        Raises:
            InsufficientBudget: when neither sum has so much left.
            InvalidBudget: when something is no amount.
        """
        try:
            return replace(
                self,
                reserved=EXACT.add(self.reserved, amount(requested.renyi)),
                pure_reserved=EXACT.add(self.pure_reserved, amount(requested.pure or Decimal(0))),
                impure=self.impure or requested.pure is None,
            )
        except InsufficientBudget:
            raise InsufficientBudget(requested.renyi, self.remaining) from None

    def charge(self, share: Share, cost: Amounts) -> "Account":
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
        none = Decimal(0)
        reserved = _left(self.reserved, share.reserved.renyi)
        pure_reserved = _left(self.pure_reserved, share.reserved.pure or none)
        pure_spent = EXACT.subtract(moved.spent.pure or none, share.spent.pure or none)
        return replace(
            self,
            reserved=EXACT.add(reserved, moved.reserved.renyi),
            spent=EXACT.add(self.spent, EXACT.subtract(moved.spent.renyi, share.spent.renyi)),
            pure_reserved=EXACT.add(pure_reserved, moved.reserved.pure or none),
            pure_spent=EXACT.add(self.pure_spent, pure_spent),
        )
