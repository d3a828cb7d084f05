"""Spending: every movement of a data set's budget, whoever holds a share of it, and how amounts are shown.

Rows keep amounts as strings of exact decimals, those of the pure sum beside those at the ledger's order; all arithmetic
with them is that of accounts and shares (:mod:`app.privacy.ledger`). A movement changes a row and is told by a line of
the ledger; the caller writes both in one transaction.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from typing import Any, get_args

from app.curator.opening import Header, StatedPlan
from app.curator.plan import SessionPlan
from app.privacy.errors import InsufficientBudget
from app.privacy.exactness import EXACT, ceil_to
from app.privacy.ledger import SHOWN, Account, Amounts, Budget, Epsilons, Regime, Share
from app.services.errors import BudgetExhausted
from app.services.ports import DatasetRow, Holding, LedgerKind, LedgerRow, SessionRow


def account_of(row: DatasetRow, budget: Budget, holdings: Iterable[Holding]) -> Account:
    """Where a data set stands: the exact sums over its sessions, and what was forfeited beside them."""
    forfeited = Amounts(Decimal(row.forfeited), Decimal(row.forfeited_pure))
    return Account.over(budget, _shares(holdings), forfeited, impure=row.impure)


def account_of_owner(owner: str, budget: Budget, holdings: Iterable[Holding]) -> Account:
    """Where somebody stands with a data set: the exact sums over his sessions."""
    his = _shares(each for each in holdings if each.owner == owner)
    return Account.over(budget, his, impure=any(share.spent.pure is None for share, _ in his))


def _shares(holdings: Iterable[Holding]) -> list[tuple[Share, int]]:
    """What is held and spent, added up. Nobody holds less than nothing: where movements come to that more was charged
    than was taken. All of it counts as spent, and whoever looks for the fault must see that.
    """
    found = []
    for each in added_up(holdings):
        held, pure = max(each.reserved, "0", key=Decimal), each.reserved_pure
        own = replace(each, reserved=held, reserved_pure=None if pure is None else max(pure, "0", key=Decimal))
        found.append((_share(own), own.sessions))
    return found


def stood(standing: Iterable[Holding], opened: Holding, closed: Iterable[Holding]) -> list[Holding]:
    """The sums that change where a session is opened and closed ones are settled: one for each owner and whether noise
    is pure, of what open sessions were opened with, and of what closed ones have spent.

    Accounts over these are those over the sessions (:meth:`Account.over` adds exactly), but that what open ones have
    spent counts as held.
    """
    sums = {(each.owner, each.spent_pure is not None): _share(each) for each in standing}
    changed = {}
    for each, is_closed in [(opened, False), *((one, True) for one in closed)]:
        key, moved = (each.owner, each.spent_pure is not None), _share(each)
        none = Amounts.none(pure=key[1])
        own = sums.get(key, Share(none, none))
        if is_closed:
            own = Share(own.reserved.minus(moved.reserved), own.spent.plus(moved.spent))
        else:
            own = Share(own.reserved.plus(moved.reserved), own.spent)
        sums[key] = changed[key] = own
    return [_holding(owner, share) for (owner, _), share in changed.items()]


def added_up(holdings: Iterable[Holding]) -> list[Holding]:
    """The exact sums of holdings, some of which may be taken off: one for each owner and whether noise is pure."""
    sums: dict[tuple[str, bool], tuple[Decimal, ...]] = {}
    for each in holdings:
        key = each.owner, each.spent_pure is not None
        moved = each.reserved, each.spent, each.reserved_pure or "0", each.spent_pure or "0"
        own = sums.get(key, (Decimal(0),) * 4)
        sums[key] = tuple(EXACT.fma(Decimal(a), each.sessions, b) for a, b in zip(moved, own, strict=True))
    found = []
    for (owner, pure), (held, spent, held_pure, spent_pure) in sorted(sums.items()):
        sums_of_pure = (str(held_pure), str(spent_pure)) if pure else (None, None)
        found.append(Holding(owner, str(held), str(spent), sums_of_pure[0], sums_of_pure[1], 1))
    return found


def is_held(holdings: Iterable[Holding]) -> bool:
    """Whether any session holds something still. No session holds less than nothing, so that an exact sum of what they
    hold is nothing only where each holds nothing.
    """
    return any(Decimal(each.reserved) or Decimal(each.reserved_pure or 0) for each in added_up(holdings))


def opened_with(row: SessionRow) -> Holding:
    """What a session that was just opened took, held or spent."""
    share = _share(row)
    total = share.reserved.plus(share.spent)
    return _holding(row.owner, Share(total, Amounts.none(pure=total.pure is not None)))


def check_share(account: Account, holds: Amounts, epsilon: Decimal) -> None:
    """Refuse amounts that a data set does not have; ``epsilon`` is what was asked for.

    Raises:
        BudgetExhausted: saying how much epsilon is left.
    """
    try:
        account.reserve(holds)
    except InsufficientBudget:
        raise BudgetExhausted(
            "the data set's budget does not hold so much: ask for less",
            requested=epsilon,
            remaining=account.left_for(holds, account.budget.epsilon),
        ) from None


def check_cap(his: Account, holds: Amounts, cap: Decimal, epsilon: Decimal) -> None:
    """Refuse amounts with which somebody's sessions, of which ``his`` is the account, would pass his cap, an epsilon.

    Raises:
        BudgetExhausted: saying how much epsilon is left of the cap.
    """
    try:
        his.check_cap(cap, holds)
    except InsufficientBudget:
        raise BudgetExhausted(
            "your grant on this data set does not hold so much: ask for less, or an admin for more",
            requested=epsilon,
            remaining=his.left_for(holds, cap),
        ) from None


def begin(row: SessionRow, holds: Amounts, purchase: Amounts | None) -> tuple[SessionRow, list[LedgerRow]]:
    """A session that is opened: its share is reserved; the cost of what it buys, if anything, is charged."""
    share, at = Share.of(holds), row.opened_at
    movements = [_movement(row, "reserve", holds, None, at)]
    if purchase is not None:
        share = share.charge(purchase)
        movements.append(_movement(row, "purchase", purchase, None, at))
    return _with(row, share), movements


def affordable(row: SessionRow, cost: Amounts) -> Amounts:
    """As much of a cost as a session still holds."""
    return cost.within(_share(row).reserved)


def held(row: SessionRow) -> Amounts:
    """All that a session still holds."""
    return _share(row).reserved


def charge(row: SessionRow, cost: Amounts, sequence: int, at: str) -> tuple[Share, LedgerRow]:
    """A session pays for its record of this number: what it holds and has spent then."""
    return _share(row).charge(cost), _movement(row, "charge", cost, sequence, at)


def end(row: SessionRow, at: str) -> tuple[SessionRow, LedgerRow]:
    """A session that is closed: what it did not use goes back to the data set.

    Not so where the calibration was exact: its accounting has no refunds, so what was not used is spent all the same.
    """
    share = _share(row)
    if Header.read(row.header).plan.calibration == "exact":
        return _closed(row, share.forfeit(), at), _movement(row, "charge", share.reserved, row.sequence, at)
    return _closed(row, share.give_back(), at), _movement(row, "return", share.reserved, row.sequence, at)


def forfeit(row: SessionRow, at: str) -> tuple[SessionRow, LedgerRow]:
    """A session of an old copy, which is closed: whatever it held counts as spent."""
    share = _share(row)
    return _closed(row, share.forfeit(), at), _movement(row, "forfeit", share.reserved, row.sequence, at)


def forfeit_rest(row: DatasetRow, account: Account, at: str) -> tuple[DatasetRow, LedgerRow]:
    """A data set of an old copy: what is left of its budget, in both sums, counts as spent by itself.

    Nobody knows by which noise, so it is impure from then on: but where only pure noise was ever promised more than
    the Renyi sum holds, and both sums are full, which the flag would contradict.
    """
    left, pure = str(account.remaining), str(account.pure_remaining)
    lost = replace(row, forfeited=left, forfeited_pure=pure, impure=account.used <= account.budget.total)
    return lost, LedgerRow(row.name, None, "forfeit", left, pure, None, at)


def budget_view(account: Account) -> dict[str, Any]:
    """A data set's budget as epsilons; what is left is rounded down.

    What is said of the whole is said of the sum that is shown (:attr:`Account.regime`); both stand beside it.
    """
    budget = account.budget
    return {"epsilon": float(budget.epsilon), "delta": float(budget.delta), **_standing(account, budget.epsilon)}


def grant_view(his: Account, cap: Decimal | None, account: Account) -> dict[str, Any]:
    """Somebody's grant and what is left of it, as epsilons, beside the data set's account. Without a grant the data
    set's whole epsilon is the cap.

    ``available_epsilon`` is what a session could have at most: no more than the data set has left. ``epsilon_alone`` is
    what his answers would guarantee, with the data set's delta, were they all that is ever computed from the data
    (docs/privacy.md, 8.2).
    """
    budget = account.budget
    most = budget.epsilon if cap is None else cap
    view = _standing(his, most)
    left = account.shown(account.regime, budget.epsilon).remaining
    return {
        "epsilon": None if cap is None else float(cap),
        "epsilon_alone": float(budget.alone(most)),
        **view,
        "available_epsilon": min(view["remaining_epsilon"], float(left)),
    }


def _standing(account: Account, cap: Decimal) -> dict[str, Any]:
    """What of a cap is spent, reserved and left: by the sum that is shown, and by each of both."""
    regime = account.regime_within(cap)
    sums = {name: _epsilons(account.shown(name, cap)) for name in get_args(Regime)}
    return {"regime": regime, **sums[regime], **sums, "impure": account.impure}


def _epsilons(shown: Epsilons) -> dict[str, float]:
    return {
        "spent_epsilon": float(shown.spent),
        "reserved_epsilon": float(shown.reserved),
        "remaining_epsilon": float(shown.remaining),
    }


def moved_epsilon(row: LedgerRow, account: Account) -> float:
    """A movement as a part of a data set's epsilon, rounded up, in the sum that is shown of the whole."""
    if account.regime == "pure" and row.pure is not None:
        return float(ceil_to(Decimal(row.pure), SHOWN))
    return float(account.budget.spent_epsilon(Decimal(row.amount)))


def account_view(account: Account) -> dict[str, Any]:
    """A data set's exact amounts."""
    return {
        "order": str(account.budget.order),
        "budget": str(account.budget.total),
        "spent": str(account.spent),
        "reserved": str(account.reserved),
        "remaining": str(account.remaining),
        "sum": str(account.used),
        "pure": {
            "budget": str(account.budget.epsilon),
            "spent": str(account.pure_spent),
            "reserved": str(account.pure_reserved),
            "remaining": str(account.pure_remaining),
            "sum": str(account.pure_used),
        },
    }


def charged_epsilon(plan: SessionPlan | StatedPlan, price: Amounts | None) -> float:
    """The cost of an answer as a part of the epsilon that its session was opened with."""
    return 0.0 if price is None else _part(plan, price)


def left_epsilon(plan: SessionPlan, row: SessionRow, price: Amounts | None) -> float:
    """What a session would hold after a price, as a part of the epsilon that it was opened with."""
    left = held(row)
    return _part(plan, left if price is None else left.minus(price))


def share_view(row: SessionRow, plan: StatedPlan) -> dict[str, str | float | None]:
    """A session's amounts, exact and as parts of the epsilon that it was opened with."""
    share = _share(row)
    return {
        "spent": row.spent,
        "reserved": row.reserved,
        "spent_pure": row.spent_pure,
        "reserved_pure": row.reserved_pure,
        "spent_epsilon": _part(plan, share.spent),
        "reserved_epsilon": _part(plan, share.reserved),
    }


def _part(plan: SessionPlan | StatedPlan, amounts: Amounts) -> float:
    """Amounts of a session as a part of its epsilon, in the sum that this is a share of."""
    if plan.regime == "pure":
        assert amounts.pure is not None
        return float(amounts.pure)
    if not amounts.renyi:  # all there is of a session without a share
        return 0.0
    return float(Fraction(plan.epsilon) * Fraction(amounts.renyi) / Fraction(plan.reserved))


def _share(row: SessionRow | Holding) -> Share:
    return Share(
        Amounts(Decimal(row.reserved), None if row.reserved_pure is None else Decimal(row.reserved_pure)),
        Amounts(Decimal(row.spent), None if row.spent_pure is None else Decimal(row.spent_pure)),
    )


def _holding(owner: str, share: Share) -> Holding:
    held, spent = share.reserved, share.spent
    return Holding(owner, str(held.renyi), str(spent.renyi), _text(held.pure), _text(spent.pure), 1)


def _movement(row: SessionRow, kind: LedgerKind, amounts: Amounts, sequence: int | None, at: str) -> LedgerRow:
    return LedgerRow(row.dataset, row.id, kind, str(amounts.renyi), _text(amounts.pure), sequence, at)


def _with(row: SessionRow, share: Share) -> SessionRow:
    return replace(
        row,
        spent=str(share.spent.renyi),
        reserved=str(share.reserved.renyi),
        spent_pure=_text(share.spent.pure),
        reserved_pure=_text(share.reserved.pure),
    )


def _closed(row: SessionRow, share: Share, at: str) -> SessionRow:
    return replace(_with(row, share), status="closed", closed_at=at)


def _text(amount: Decimal | None) -> str | None:
    return None if amount is None else str(amount)
