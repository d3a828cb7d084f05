"""The sessions that a lane holds in memory.

Whatever is here follows from the transcript and may be dropped at any time, but for what is not written yet.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Container
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from app.curator.errors import SessionClosed
from app.curator.session import Session
from app.services.datasets import public_dataset
from app.services.ports import NoisePort, PrivateStore, SessionRow, Transaction
from app.services.sessions import catch_up, load_session
from app.spaces.tensor import Tensor

#: Updates that a session is given memory for beside those it has made: a guaranteed plan may allow far more of them.
UPDATES_AHEAD = 10_000


class NoRoom(Exception):
    """A session does not fit into memory beside those whose answers are not written yet."""


@dataclass(slots=True, eq=False)
class Live:
    """A session in memory, at the state of ``row``."""

    row: SessionRow
    session: Session
    data: Tensor
    noise: Any
    counts: Any
    nbytes: int
    cost: Decimal


class Residents:
    """Sessions in memory, the least recently used of them dropped when they need more than ``memory_limit`` bytes.

    One thread's own.
    """

    def __init__(self, private: PrivateStore, noise: NoisePort, memory_limit: int) -> None:
        self._private, self._noise, self._memory_limit = private, noise, memory_limit
        self._live: OrderedDict[str, Live] = OrderedDict()
        self._held = 0

    def __contains__(self, id: str) -> bool:
        return id in self._live

    def get(self, id: str) -> Live | None:
        """The session if it is in memory, as it is there."""
        return self._live.get(id)

    def load(self, begin: Callable[[], Transaction], row: SessionRow, unwritten: Container[str]) -> Live:
        """The session in memory, at the state of its row.

        Args:
            begin: gives a transaction; called only where something must be read.
            row: the session's row, locked where several processes answer.
            unwritten: sessions that must stay, as they could not be restored from the database.

        Raises:
            SessionClosed: when its data set is retired.
            NoRoom: when it must wait until the answers of others are written.
        """
        live = self._live.get(row.id)
        if live is None:
            live = self._restore(begin(), row)
            self._live[row.id] = live
            self._held += live.nbytes
            while self._held > self._memory_limit and len(self._live) > 1:
                oldest = next((id for id in self._live if id != row.id and id not in unwritten), None)
                if oldest is None:
                    self.drop(row.id)
                    raise NoRoom
                self.drop(oldest)
        elif live.row.sequence < row.sequence:
            try:
                catch_up(begin(), row.id, live.session)
            except BaseException:
                self.drop(row.id)  # an entry may have been counted whose update was not made
                raise
            live.row = row
        self._live.move_to_end(row.id)
        return live

    def drop(self, id: str) -> None:
        """Forget a session, if it is there."""
        live = self._live.pop(id, None)
        if live is not None:
            self._held -= live.nbytes

    def _restore(self, tx: Transaction, row: SessionRow) -> Live:
        stored = tx.dataset(row.dataset)
        if stored is None or stored.retired_at is not None:
            raise SessionClosed("the data set is retired: its sessions answer nothing")
        session = load_session(tx, row)
        space, plan = session.dataset.space, session.plan
        assert public_dataset(stored).space == space
        return Live(
            row=row,
            session=session,
            data=self._private.tensor(space, stored.vault_entry),
            noise=self._noise.laplace(plan.noise_scale_units),
            counts=None if plan.race is None else self._noise.poisson(plan.race.mean, plan.race.cut),
            nbytes=session.construction.nbytes(min(plan.max_updates, session.updates_used + UPDATES_AHEAD)),
            cost=plan.cost_per_update,
        )
