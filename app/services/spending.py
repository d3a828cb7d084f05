"""Spending: every movement of a data set's budget, whoever holds a share of it, and how amounts are shown.

Rows keep amounts as strings of exact decimals at the ledger's order; all arithmetic with them is that of accounts and
shares (:mod:`app.privacy.ledger`). A movement changes a row and is told by a line of the ledger; the caller writes both
in one transaction.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction

from app.curator.opening import Header, StatedPlan
from app.curator.plan import SessionPlan
from app.privacy.errors import InsufficientBudget
from app.privacy.ledger import Account, Budget, Share
from app.services.errors import BudgetExhausted
from app.services.ports import DatasetRow, Holding, LedgerRow, SessionRow


def account_of(budget: Budget, holdings: Iterable[Holding], forfeited: str = "0") -> Account:
    """Where a data set stands: the exact sum over its sessions, and what was forfeited beside them."""
    return Account.over(budget, ((_share(each), each.sessions) for each in holdings), Decimal(forfeited))


def check_share(account: Account, share: Decimal, epsilon: Decimal) -> None:
    """Refuse a share that a data set does not have; ``epsilon`` is what was asked for.

    Raises:
        BudgetExhausted: saying how much epsilon is left.
    """
    try:
        account.reserve(share)
    except InsufficientBudget as error:
        raise BudgetExhausted(
            "the data set's budget does not hold so much: ask for less",
            requested=epsilon,
            remaining=account.budget.epsilon_left(error.remaining),
        ) from None


def check_cap(mine: Account, share: Decimal, cap: Decimal) -> None:
    """Refuse a share with which somebody's sessions, of which ``mine`` is the account, would pass his cap, an epsilon.

    Raises:
        BudgetExhausted: saying how much epsilon is left of the cap.
    """
    budget = mine.budget
    try:
        mine.check_cap(budget.cap(cap), share)
    except InsufficientBudget as error:
        raise BudgetExhausted(
            "your grant on this data set does not hold so much: ask for less, or an admin for more",
            requested=budget.epsilon_left(share),
            remaining=budget.epsilon_left(error.remaining),
        ) from None


def begin(row: SessionRow, reserved: Decimal, purchase: Decimal | None) -> tuple[SessionRow, list[LedgerRow]]:
    """A session that is opened: its share is reserved; the cost of what it buys, if anything, is charged."""
    share, at = Share(reserved), row.opened_at
    movements = [LedgerRow(row.dataset, row.id, "reserve", str(reserved), None, at)]
    if purchase is not None:
        share = share.charge(purchase)
        movements.append(LedgerRow(row.dataset, row.id, "purchase", str(purchase), None, at))
    return _holding(row, share), movements


def charge(row: SessionRow, cost: Decimal, sequence: int, at: str) -> tuple[Share, LedgerRow]:
    """A session pays for its record of this number: what it holds and has spent then."""
    return _share(row).charge(cost), LedgerRow(row.dataset, row.id, "charge", str(cost), sequence, at)


def end(row: SessionRow, at: str) -> tuple[SessionRow, LedgerRow]:
    """A session that is closed: what it did not use goes back to the data set.

    Not so where the calibration was exact: its accounting has no refunds, so what was not used is spent all the same.
    """
    share = _share(row)
    if Header.read(row.header).plan.calibration == "exact":
        return _closed(row, share.forfeit(), at), LedgerRow(
            row.dataset, row.id, "charge", row.reserved, row.sequence, at
        )
    return _closed(row, share.give_back(), at), LedgerRow(row.dataset, row.id, "return", row.reserved, row.sequence, at)


def forfeit(row: SessionRow, at: str) -> tuple[SessionRow, LedgerRow]:
    """A session of an old copy, which is closed: whatever it held counts as spent."""
    movement = LedgerRow(row.dataset, row.id, "forfeit", row.reserved, row.sequence, at)
    return _closed(row, _share(row).forfeit(), at), movement


def forfeit_rest(row: DatasetRow, budget: Budget, holdings: Iterable[Holding], at: str) -> LedgerRow:
    """A data set of an old copy: what is left of its budget counts as spent by itself."""
    left = account_of(budget, holdings, row.forfeited).remaining
    return LedgerRow(row.name, None, "forfeit", str(left), None, at)


def budget_view(account: Account) -> dict[str, float]:
    """A data set's budget as epsilons; what is left is rounded down."""
    budget = account.budget
    return {
        "epsilon": float(budget.epsilon),
        "delta": float(budget.delta),
        "spent_epsilon": float(budget.spent_epsilon(account.spent)),
        "reserved_epsilon": float(budget.spent_epsilon(account.reserved)),
        "remaining_epsilon": float(account.remaining_epsilon),
    }


def account_view(account: Account) -> dict[str, str]:
    """A data set's exact amounts."""
    return {
        "order": str(account.budget.order),
        "budget": str(account.budget.total),
        "spent": str(account.spent),
        "reserved": str(account.reserved),
        "remaining": str(account.remaining),
        "sum": str(account.used),
    }


def charged_epsilon(plan: SessionPlan, price: Decimal | None) -> float:
    """What an answer costs, as a part of the epsilon that its session was opened with."""
    return 0.0 if price is None else float(Fraction(plan.epsilon) * Fraction(price) / Fraction(plan.reserved))


def share_view(row: SessionRow, plan: StatedPlan) -> dict[str, str | float]:
    """A session's amounts, exact and as parts of the epsilon that it was opened with."""
    share, each = _share(row), Fraction(plan.epsilon) / Fraction(plan.reserved)
    return {
        "spent": row.spent,
        "reserved": row.reserved,
        "spent_epsilon": float(each * Fraction(share.spent)),
        "reserved_epsilon": float(each * Fraction(share.reserved)),
    }


def _share(row: SessionRow | Holding) -> Share:
    return Share(Decimal(row.reserved), Decimal(row.spent))


def _holding(row: SessionRow, share: Share) -> SessionRow:
    return replace(row, spent=str(share.spent), reserved=str(share.reserved))


def _closed(row: SessionRow, share: Share, at: str) -> SessionRow:
    return replace(_holding(row, share), status="closed", closed_at=at)
