"""Grants: how much of a data set an analyst may hold and spend, and what everybody holds and has spent."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

from app.declarations.errors import InvalidRequest
from app.privacy.ledger import Amounts, Budget
from app.services import spending
from app.services.datasets import DUMMY, Datasets, check_open, find_dataset, grant_view, grant_views, is_dummy
from app.services.errors import Conflict, NotFound
from app.services.pages import Page
from app.services.ports import DatasetRow, Holding, Store, Transaction
from app.services.principals import Principal, find_principal


class Grants:
    """Gives grants, and shows who holds and spent how much: epsilons, and never what was asked."""

    def __init__(self, store: Store, datasets: Datasets) -> None:
        self._store, self._datasets = store, datasets

    def grant(self, actor: Principal, name: str, principal: str, epsilon: Any) -> dict[str, Any]:
        """Set an analyst's cap: the most epsilon of this data set that his sessions may hold and spend.

        Raises:
            NotFound: for an unknown data set or principal.
            InvalidRequest: for an epsilon that is no number from 0 to the data set's.
            Conflict: for a grant that nobody could use: an auditor's, or of a data set that is retired.
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
            if cap and who.role == "auditor":
                raise Conflict(f"{principal!r} is an auditor, who asks nothing: grants are for analysts")
            if cap and row.retired_at is not None:
                raise Conflict(f"the data set {name!r} is retired: nothing is asked of it any more")
            tx.set_grant(name, principal, str(cap))
            view = grant_view(row, tx.holdings(name), principal, str(cap))
            tx.commit()
        return view | {"promises": _promises(view, row)}

    def of_dataset(self, actor: Principal, name: str, after: str, most: int) -> Page:
        """Whoever has a grant on a data set or ever opened a session on it, by name beyond ``after``.

        Raises:
            NotFound: when there is no such data set.
        """
        actor.require("admin")
        with self._store.read() as tx:
            row, holdings, grants = find_dataset(tx, name), tx.holdings(name), tx.grants(name)
            everybody = {*grants, *(each.owner for each in holdings)}
            names, others = _page(everybody, after, most)
            views = grant_views(row, holdings, {who: grants.get(who) for who in names})
        return Page(views, names[-1] if others else None)

    def own(self, actor: Principal, after: str, most: int) -> Page:
        """The actor's own, of each data set that he has a grant on or ever opened a session on, by its name."""
        with self._store.read() as tx:
            grants = tx.grants_of(actor.name)
            names, others = _page({*grants, *tx.datasets_of(actor.name)}, after, most)
            rows = [find_dataset(tx, name) for name in names]
            views = [grant_view(row, tx.holdings(row.name), actor.name, grants.get(row.name)) for row in rows]
        return Page(views, names[-1] if others else None)


def _page(names: set[str], after: str, most: int) -> tuple[list[str], bool]:
    """Names beyond another one, in order, and whether there are others; those of made-up data sets left out."""
    beyond = sorted(name for name in names if name > after and not name.startswith(DUMMY))
    return beyond[:most], len(beyond) > most


def _promises(view: Mapping[str, Any], row: DatasetRow) -> str:
    """What a grant promises, alone and with others (docs/privacy.md, 8.2)."""
    cap, alone, budget = view["epsilon"], view["epsilon_alone"], row.spec["budget"]
    whole, delta = budget["epsilon"], budget["delta"]
    if not cap:
        return "nothing new is computed for this analyst: what the data set promises does not change"
    return (
        f"{cap:g} of the data set's epsilon of {whole:g} is a part of its budget and no guarantee of {cap:g}: alone "
        f"these answers would keep epsilon {math.ceil(1000 * alone) / 1000:g} at delta {delta:g}, and together with "
        f"those of everybody else they keep epsilon {whole:g}, whatever all grants add up to"
    )


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
            check_open(row, requested=float(epsilon), remaining=0.0)
        return
    if not epsilon:
        # It takes nothing, also of a cap that was lowered below what is spent.
        return
    spending.check_cap(spending.account_of_owner(actor.name, budget, holdings), holds, Decimal(granted), epsilon)
