"""Grants: how much of a data set an analyst may hold and spend."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Any

from app.declarations.errors import InvalidRequest
from app.privacy.ledger import Amounts, Budget
from app.services import spending
from app.services.datasets import Datasets, check_open, is_dummy
from app.services.errors import NotFound
from app.services.ports import DatasetRow, Holding, Transaction
from app.services.principals import Principal, find_principal


class Grants:
    """Gives grants."""

    def __init__(self, datasets: Datasets) -> None:
        self._datasets = datasets

    def grant(self, actor: Principal, name: str, principal: str, epsilon: Any) -> dict[str, Any]:
        """Set an analyst's cap: the most epsilon of this data set that his sessions may hold and spend.

        Raises:
            NotFound: for an unknown data set or principal.
            InvalidRequest: for an epsilon that is no number from 0 to the data set's.
        """
        actor.require("admin")
        if isinstance(epsilon, bool) or not isinstance(epsilon, int | float):
            raise InvalidRequest("epsilon must be a number")
        cap = Decimal(repr(epsilon))
        with self._datasets.locked(name) as (tx, row):
            who = find_principal(tx, principal)
            if who is None or who.revoked_at is not None:
                raise NotFound(f"no principal {principal[:64]!r} holds a key")
            total = Decimal(str(row.spec["budget"]["epsilon"]))
            if not cap.is_finite() or not 0 <= cap <= total:
                raise InvalidRequest(f"epsilon must lie between 0 and the data set's {total}")
            tx.set_grant(name, principal, str(cap))
            tx.commit()
        return {"dataset": name, "principal": principal, "epsilon": float(cap)}


def check_granted(
    tx: Transaction,
    row: DatasetRow,
    actor: Principal,
    holdings: Sequence[Holding],
    budget: Budget,
    holds: Amounts,
    epsilon: Decimal,
) -> None:
    """Refuse amounts, asked for as this epsilon, that the actor may not hold: no access, or past his cap.

    Raises:
        Forbidden: when access is by grant and there is none.
        BudgetExhausted: when they pass the cap.
    """
    if is_dummy(row):
        # Who may see the data set was asked before; made-up records have no cap.
        return
    granted = tx.grant(row.name, actor.name)
    if granted is None:
        if actor.role != "admin":
            check_open(row)
        return
    spending.check_cap(spending.account_of_owner(actor.name, budget, holdings), holds, Decimal(granted), epsilon)
