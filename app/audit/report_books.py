"""The books of a log: what movements of ledgers add up to, by data set and by session, and whether they may.

Amounts are exact decimals (Renyi divergence at the data set's order, and the epsilon of pure noise beside it), added as
the service adds them (:mod:`app.privacy.ledger`). A rule that does not hold raises :class:`Wrong`; the movement that
broke it counts all the same, so that the sums are those of the lines as they stand.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from functools import lru_cache, reduce
from typing import Any, Literal

from app.audit.report_points import Thinned
from app.privacy.errors import PrivacyError
from app.privacy.exactness import EXACT
from app.privacy.ledger import Account, Amounts, Budget, Share, amount

#: Movements of a data set that are shown: so many first ones and so many last ones.
MOST_MOVEMENTS = 100
#: Digits that an amount, or what a budget is declared by, has at most, and how large it may be (a power of ten).
_MOST_DIGITS, _GREATEST = 64, 12
#: What is looked at.
Check = Literal["records", "chains", "books", "charges"]
_SUMS = ("spent", "reserved", "pure_spent", "pure_reserved")
_KINDS = ("reserve", "charge", "return", "purchase", "forfeit")


class Wrong(ValueError):
    """Something in the log does not follow."""

    def __init__(self, check: Check, says: str) -> None:
        super().__init__(says)
        self.check = check


def decimal_of(value: Any) -> Decimal:
    """An exact number from JSON: a string as it stands, a number by its fewest digits.

    Raises:
        TypeError: when it is none, or too long.
    """
    if isinstance(value, bool) or not isinstance(value, int | float | str) or len(text := str(value)) > _MOST_DIGITS:
        raise TypeError("an amount is a decimal")
    found = Decimal(text)
    if not found.is_finite() or (found and found.adjusted() > _GREATEST):
        raise TypeError("an amount is a decimal of ordinary size")
    return found


def text_of(value: Decimal) -> str:
    """An exact number in digits, without an exponent and without zeros that say nothing."""
    text = format(value, "f")
    return text.rstrip("0").rstrip(".") if "." in text else text


def amounts_of(renyi: Any, pure: Any) -> Amounts:
    """What something costs, or holds, from a record's fields.

    Raises:
        TypeError, PrivacyError: when these are no amounts.
    """
    return Amounts(amount(decimal_of(renyi)), None if pure is None else amount(decimal_of(pure)))


@lru_cache(maxsize=1024)
def _budget(epsilon: Decimal, delta: Decimal) -> Budget:
    """The budget of a declaration. Finding its order takes a twentieth of a second, and many have the same."""
    return Budget.of(epsilon, delta)


@dataclass(slots=True)
class Holding:
    """What a session holds of its data set by the movements, and what its entries and measurements say that it paid.

    ``price`` is what each charged round costs, where all cost the same. ``short_at`` is the time of the record from
    which on it has paid less than its records cost; None where it has not.
    """

    dataset: str
    promised: Amounts
    price: Amounts | None
    share: Share | None = None
    told: Decimal = Decimal(0)
    short_at: str | None = None

    def tell(self, cost: Decimal, at: str) -> None:
        """Take in what a record of some time says that it cost."""
        self.told = EXACT.add(self.told, cost)
        if self.short_at is None and self.told > self.paid:
            self.short_at = at

    def move(self, kind: str, moved: Amounts) -> None:
        """Take in a movement.

        Raises:
            Wrong: when the session's share does not allow it; what it held is then gone as far as it goes.
        """
        if kind == "reserve":
            if self.share is not None:
                raise Wrong("books", "a session reserves a second time")
            self.share = Share.of(moved)
            if moved != self.promised:
                raise Wrong("books", "what a session reserves is not what the plan in its header says")
            return
        share = self.share
        if share is None:
            raise Wrong("books", "a session spends before anything is reserved for it")
        try:
            if kind == "return":
                self.share = Share(share.reserved.minus(moved), share.spent)
            else:
                self.share = share.charge(moved)
        except PrivacyError:
            raise Wrong("books", "a session spends, or gives back, more than was reserved for it") from None
        if self.told <= self.paid:
            self.short_at = None

    @property
    def paid(self) -> Decimal:
        """What it has spent by the movements, at the ledger's order."""
        return Decimal(0) if self.share is None else self.share.spent.renyi


@dataclass
class Book:
    """A data set by the log: what was declared, and what became of its budget.

    Attributes:
        declared: as it was registered; None before.
        commitment: to its private file.
        revealed: to whom its key was given, and when; the first ones.
        unit: of privacy, as headers have it.
        stated: epsilon and delta, by the registration or by the first session's header.
    """

    name: str
    declared: Any = None
    records: Any = None
    registered_at: Any = None
    retired_at: Any = None
    commitment: Any = None
    revealed: list[dict[str, Any]] = field(default_factory=list)
    unit: Any = None
    stated: tuple[Decimal, Decimal] | None = None
    budget: Budget | None = None
    reserved: Decimal = Decimal(0)
    spent: Decimal = Decimal(0)
    pure_reserved: Decimal = Decimal(0)
    pure_spent: Decimal = Decimal(0)
    impure: bool = False
    sums: dict[str, tuple[int, Decimal]] = field(default_factory=dict)
    first: list[Mapping[str, Any]] = field(default_factory=list)
    last: deque[Mapping[str, Any]] = field(default_factory=lambda: deque(maxlen=MOST_MOVEMENTS))
    steps: Thinned[tuple[Any, Decimal, Decimal, Decimal, Decimal]] = field(
        default_factory=lambda: Thinned(lambda step: step[1] + step[2])
    )

    def state_budget(self, document: Mapping[str, Any]) -> None:
        """Take in what is stated of the budget, epsilon and delta.

        Raises:
            Wrong: when it is none, or something else was stated before.
        """
        stated = (decimal_of(document["epsilon"]), decimal_of(document["delta"]))
        if self.stated is not None:
            if stated != self.stated:
                raise Wrong("books", "a data set's budget is not the one that was stated before")
            return
        self.stated = stated
        try:
            self.budget = _budget(*stated)
        except PrivacyError as error:
            raise Wrong("books", f"a data set's budget is none: {error}") from None

    def move(self, movement: Mapping[str, Any], kind: str, moved: Amounts) -> None:
        """Take in a movement.

        Raises:
            Wrong: when the budget does not hold it.
        """
        lost = kind == "forfeit" and movement["session"] is None
        renyi, pure = moved.renyi, moved.pure or Decimal(0)
        if kind == "reserve":
            self.reserved, self.pure_reserved = EXACT.add(self.reserved, renyi), EXACT.add(self.pure_reserved, pure)
            self.impure = self.impure or moved.pure is None
        else:
            if lost:  # what was left, of which nobody knows by which noise it went
                self.impure = self.impure or self.budget is None or self.used <= self.budget.total
            else:
                self.reserved = EXACT.subtract(self.reserved, renyi)
                self.pure_reserved = EXACT.subtract(self.pure_reserved, pure)
            if kind != "return":
                self.spent, self.pure_spent = EXACT.add(self.spent, renyi), EXACT.add(self.pure_spent, pure)
        number, held = self.sums.get(kind, (0, Decimal(0)))
        self.sums[kind] = (number + 1, EXACT.add(held, renyi))
        (self.first if len(self.first) < MOST_MOVEMENTS else self.last).append(movement)
        self.steps.add((movement["recorded_at"], self.spent, self.reserved, self.pure_spent, self.pure_reserved))
        if min(self.reserved, self.pure_reserved) < 0:
            raise Wrong("books", "more leaves a data set's reserve than came into it")
        if self.budget is None:
            raise Wrong("books", "a budget moves that nothing has stated before")
        if self.used > self.budget.total and (self.impure or self.pure_used > self.budget.epsilon):
            raise Wrong("books", "a data set's budget is passed")

    @property
    def used(self) -> Decimal:
        """What is reserved or spent at the ledger's order."""
        return EXACT.add(self.reserved, self.spent)

    @property
    def pure_used(self) -> Decimal:
        """What is reserved or spent of epsilon by what is pure."""
        return EXACT.add(self.pure_reserved, self.pure_spent)

    def document(self) -> dict[str, Any]:
        """As JSON: amounts are decimal strings, what is left out of the movements is summed up by their kinds."""
        shown = [*self.first, *self.last]
        left: dict[str, dict[str, Any]] = {}
        for kind, (number, total) in self.sums.items():
            mine = [decimal_of(each["amount"]) for each in shown if each["kind"] == kind]
            if number > len(mine):
                rest = EXACT.subtract(total, reduce(EXACT.add, mine, Decimal(0)))
                left[kind] = {"number": number - len(mine), "amount": text_of(rest)}
        return {
            "budget": self._budget_document(),
            "movements": {
                "number": sum(number for number, _ in self.sums.values()),
                "by_kind": {kind: {"number": n, "amount": text_of(held)} for kind, (n, held) in self.sums.items()},
                "first": self.first,
                "left_out": left,
                "last": list(self.last),
            },
            "steps": [
                {"recorded_at": at} | dict(zip(_SUMS, map(text_of, sums), strict=True))
                for at, *sums in self.steps.items()
            ],
        }

    def _budget_document(self) -> dict[str, Any]:
        found: dict[str, Any] = {
            "epsilon": None if self.stated is None else text_of(self.stated[0]),
            "delta": None if self.stated is None else text_of(self.stated[1]),
            "order": None,
            "limit": None,
            **{name: text_of(getattr(self, name)) for name in _SUMS},
            "impure": self.impure,
            "regime": "renyi",
            "spent_epsilon": None,
            "reserved_epsilon": None,
        }
        budget = self.budget
        if budget is None:
            return found
        try:
            account = Account(budget, self.reserved, self.spent, self.pure_reserved, self.pure_spent, self.impure)
            pure = account.regime == "pure"
            sums = (
                (self.pure_spent, self.pure_reserved)
                if pure
                else (budget.spent_epsilon(self.spent), budget.spent_epsilon(self.reserved))
            )
            found |= {"regime": account.regime, "spent_epsilon": text_of(sums[0]), "reserved_epsilon": text_of(sums[1])}
        except PrivacyError:  # passed, or below nothing, which was found before
            pass
        return found | {"order": text_of(budget.order), "limit": text_of(budget.total)}


def movement_of(record: Mapping[str, Any]) -> tuple[str, Amounts]:
    """The kind and the amounts of a movement.

    Raises:
        KeyError, TypeError, PrivacyError: when it is none.
    """
    kind = record["kind"]
    if kind not in _KINDS:
        raise TypeError("a movement is of a known kind")
    return kind, amounts_of(record["amount"], record["pure"])


def price_of(plan: Mapping[str, Any]) -> Amounts | None:
    """What each charged round costs by a plan; None where records tell each price."""
    if plan["cost_per_update"] is None or "mode" in plan:
        return None
    return amounts_of(plan["cost_per_update"], plan.get("cost_per_update_pure"))


def bought(plan: Mapping[str, Any]) -> Decimal:
    """What a session pays at its opening for a fact, by its plan, at the ledger's order."""
    facts = plan.get("purchase") or {}
    return reduce(EXACT.add, (amounts_of(each["cost"], None).renyi for each in facts.values()), Decimal(0))
