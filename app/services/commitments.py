"""Commitments to private files, and the keys that open them."""

from __future__ import annotations

from typing import Any

from app.audit.log import revelation_record
from app.services.datasets import Datasets, find_dataset
from app.services.errors import Conflict, Unavailable
from app.services.ports import Clock, DatasetRow, PrivateStore, Store
from app.services.principals import Principal
from curator_client.proofs.commitment import ALGORITHM


class Commitments:
    """Reveals what opens commitments."""

    def __init__(self, store: Store, private: PrivateStore, clock: Clock, datasets: Datasets) -> None:
        self._store, self._private, self._clock, self._datasets = store, private, clock, datasets

    def reveal(self, actor: Principal, name: str) -> dict[str, Any]:
        """The commitment to a data set's private file and the key that opens it.

        That an admin was given it is recorded before he is, once, however often he asks.

        Raises:
            NotFound: when there is none of that name.
            Conflict: when the key was destroyed with the file, or there never was one.
            Unavailable: when the file cannot be read, or the data set not be had now.
        """
        actor.require("admin")
        now = self._clock()  # before anything private is looked at
        with self._store.read() as tx:
            row = find_dataset(tx, name)
        _check_committed(row)
        # Before the row is held: others would wait for as long as the file takes.
        try:
            key = self._private.commitment_key(row.vault_entry)
        except Unavailable:
            with self._store.read() as tx:
                _check_committed(find_dataset(tx, name))
            raise
        if key is None:
            raise Unavailable(f"the private file of {name!r} has no key: an operator must put it back from a backup")
        with self._datasets.locked(name) as (tx, row):
            _check_committed(row)
            if actor.name not in row.revealed_to:
                tx.set_revealed_to(name, (*row.revealed_to, actor.name))
                tx.add_event(revelation_record(name=name, by=actor.name, recorded_at=now))
                tx.commit()
        return {"dataset": name, "algorithm": ALGORITHM, "commitment": row.commitment, "key": key.hex()}


def _check_committed(row: DatasetRow) -> None:
    """Refuse where there is no key any more, or never was."""
    if row.commitment is None:
        raise Conflict(f"the data set {row.name!r} has no commitment: it was registered before there were any")
    if row.retired_at is not None:
        raise Conflict(
            f"the data set {row.name!r} is retired: the key of its commitment was destroyed with its private file"
        )
