"""Whether the sums that stand for sessions are what all sessions come to, looked at beside a running service.

Openings are admitted by sums, and views of a budget are sums (docs/privacy.md, 8). Both follow exactly from what was
committed, so that a difference is a fault: of a program, of a disk, or of somebody who changed rows. Nobody knows then
what was spent, and of the data set nothing more is.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from decimal import Decimal

import structlog

from app.privacy.exactness import EXACT
from app.services import spending
from app.services.errors import Unavailable
from app.services.ports import Holding, Store, Transaction

logger = structlog.get_logger(__name__)

_Sums = dict[tuple[str, bool], tuple[Decimal, ...]]


class Balance:
    """Holds sums against sessions, and refuses what would spend of a data set whose sums were found wrong."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._wrong: frozenset[str] = frozenset()

    def check(self, dataset: str) -> None:
        """Refuse to spend anything of a data set whose sums are wrong, as far as this process has looked.

        Raises:
            Unavailable: when they are.
        """
        if dataset in self._wrong:
            raise Unavailable(
                "the sums of this data set's budget are not those of its sessions: nothing is spent of it until an "
                "operator has looked",
                retry_after=3600,
            )

    def look(self, stopping: threading.Event) -> None:
        """Pass over all sessions of all data sets that are not retired. What is found wrong is logged, and refused
        until it is looked at again and right.
        """
        with self._store.read() as tx:
            names = sorted(tx.vault_entries())
        for name in names:
            if stopping.is_set():
                return
            # One view: what is committed in between is in none of the sums.
            with self._store.read() as tx:
                wrong = _differing(tx, name)
            if wrong:
                self._wrong |= {name}
                logger.error("the sums of a budget are not those of its sessions", dataset=name, sums=wrong)
            elif name in self._wrong:
                self._wrong -= {name}
                logger.info("the sums of a budget are those of its sessions again", dataset=name)


def _differing(tx: Transaction, dataset: str) -> list[str]:
    """Which sums of a data set are not those of its sessions."""
    each = _sums(tx.every(dataset))
    found = []
    if _together(_sums(tx.taken(dataset))) != _together(each):
        found.append("what openings are admitted by")
    if _sums(tx.holdings(dataset)) != each:
        found.append("what is shown")
    return found


def _sums(holdings: Iterable[Holding]) -> _Sums:
    """What is held and what is spent, in both sums, by owner and by whether noise is pure, where anything is."""
    found = {}
    for each in spending.added_up(holdings):
        amounts = each.reserved, each.spent, each.reserved_pure or "0", each.spent_pure or "0"
        if any(exact := tuple(map(Decimal, amounts))):
            found[each.owner, each.spent_pure is not None] = exact
    return found


def _together(sums: _Sums) -> _Sums:
    """What is held and spent together."""
    return {
        key: (EXACT.add(held, spent), EXACT.add(held_pure, spent_pure))
        for key, (held, spent, held_pure, spent_pure) in sums.items()
    }
