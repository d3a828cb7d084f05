"""The ledger: movements of budgets."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import exists, select

from app.services.ports import LedgerRow
from app.storage import tables as t
from app.storage.transaction import BaseTransaction

c = t.ledger.c


class Ledger(BaseTransaction):
    """How budgets moved."""

    def move_ledger(self, rows: Sequence[LedgerRow]) -> None:
        """Append movements of the ledger."""
        self._add_rows(LedgerRow, rows)

    def ledger_page(self, dataset: str, after: int, most: int) -> tuple[list[tuple[int, LedgerRow]], bool]:
        """Up to ``most`` movements of a data set's ledger numbered beyond ``after``, each with its number, in order;
        and whether there are others.
        """
        return self._numbered_page(LedgerRow, (c.id,), (after,), most, c.dataset == dataset)

    def has_moved(self, dataset: str) -> bool:
        """Whether there is any movement in a data set's ledger."""
        return bool(self.connection.execute(select(exists().where(c.dataset == dataset))).scalar_one())
