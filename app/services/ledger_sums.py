"""What the movements of ledgers come to, added up beside a running service, so that no view of a budget passes over all
sessions, or over all that they ever did.
"""

from __future__ import annotations

from app.services import spending
from app.services.ports import Store

#: Movements that are added up at a time.
_MOST = 1000


class LedgerSums:
    """Keeps the sums. Several processes may do so on one database."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._reached = 0

    def step(self, last: int) -> bool:
        """Add up the next movements of all ledgers, and whether there may be more.

        Args:
            last: the number of the last movement below which no other can come any more: one that is passed over
                would never be part of the sums.
        """
        if self._reached >= last:
            return False
        with self._store.read() as tx:
            self._reached = tx.summed_to()
        if self._reached >= last:
            return False
        with self._store.write() as tx:
            found = tx.unsummed(last, _MOST)
            if found is None:
                return False
            reached, changed = found
            tx.sum_up(
                reached,
                {name: spending.added_up([*tx.summed(name), *moved]) for name, moved in changed.items()},
            )
            tx.commit()
        self._reached = reached
        return reached < last
