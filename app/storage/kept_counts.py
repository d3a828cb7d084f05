"""Counts that a source told once: each in a private file of its own, named in the database.

They are a cache: what is lost of them, or is not what was written, is counted again. So nothing here raises for it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any, Protocol

import orjson
import structlog
from sqlalchemy import delete, select
from sqlalchemy.dialects.postgresql import insert as pg_insert
from sqlalchemy.dialects.sqlite import insert as sqlite_insert

from app.spaces.asked import KeptCounts, document, name_of, read
from app.spaces.counts import CellCounts
from app.spaces.tensor import IntArray
from app.storage import tables as t
from app.storage.private_data import DenseData
from app.storage.store import SqlStore, SqlTransaction
from app.storage.vault import Vault, VaultEntry, VaultError

c = t.kept_counts.c
logger = structlog.get_logger(__name__)


class Kept(Protocol):
    """Where counts of sources are kept."""

    def of(self, file_name: str) -> KeptCounts:
        """Those of the data set whose private file has this name."""

    def destroy(self, file_name: str) -> None:
        """Remove those of a data set for good."""

    def files(self, named: Collection[str]) -> set[str]:
        """The private files of all those of the data sets whose private files are named; others are forgotten."""


class KeptFiles:
    """Counts of sources in a vault, each named by a row.

    Args:
        vault: that has the private files of the data sets too.
        store: of the rows.
    """

    def __init__(self, vault: Vault, store: SqlStore) -> None:
        self._vault, self._store = vault, store

    def of(self, file_name: str) -> KeptCounts:
        """Those of the data set whose private file has this name."""
        return _OfOne(self._vault, self._store, file_name)

    def destroy(self, file_name: str) -> None:
        """Remove those of a data set for good. Files that a crash leaves behind are swept: no row names them."""
        with self._store.write() as tx:
            found = tx.connection.execute(select(c.entry).where(c.file_name == file_name)).scalars().all()
            if not found:
                return
            tx.connection.execute(delete(t.kept_counts).where(c.file_name == file_name))
            tx.commit()
        for entry in found:
            self._vault.destroy(VaultEntry(**orjson.loads(entry)))

    def files(self, named: Collection[str]) -> set[str]:
        """The private files of all those of the data sets whose private files are named; others are forgotten, as of a
        data set that is under another key now.
        """
        with self._store.read() as tx:
            rows = tx.connection.execute(select(c.file_name, c.entry)).all()
        for file_name in {row.file_name for row in rows}.difference(named):
            self.destroy(file_name)
        return {orjson.loads(row.entry)["file_name"] for row in rows if row.file_name in named}


class _OfOne:
    """The kept counts of one data set; see :class:`app.spaces.asked.KeptCounts`."""

    def __init__(self, vault: Vault, store: SqlStore, file_name: str) -> None:
        self._vault, self._store, self._file_name = vault, store, file_name

    def others(self, known: Sequence[str]) -> Iterator[CellCounts]:
        with self._store.read() as tx:
            names = tx.connection.execute(select(c.name).where(c.file_name == self._file_name)).scalars().all()
            for name in set(names).difference(known):
                asked = tx.connection.execute(self._one(c.asked, name)).scalar_one_or_none()
                if asked is not None:  # removed just now
                    yield read(orjson.loads(asked))

    def load(self, name: str) -> IntArray | None:
        with self._store.read() as tx:
            entry = tx.connection.execute(self._one(c.entry, name)).scalar_one_or_none()
        if entry is None:
            return None
        try:
            found = self._vault.open(VaultEntry(**orjson.loads(entry)))
        except (VaultError, OSError) as error:
            logger.warning("counts of a source are lost, and are counted again", error=type(error).__name__)
            return None
        assert isinstance(found, DenseData)
        return found.array.astype("int64")

    def _one(self, column: Any, name: str) -> Any:
        return select(column).where(c.file_name == self._file_name, c.name == name)

    def keep(self, asked: CellCounts, counts: IntArray) -> None:
        private = DenseData(counts.reshape(-1), int(counts.sum()))
        # Private files are called as their data set, and more.
        dataset = self._file_name.rsplit(".", 2)[0]
        try:
            with self._vault.registration():
                entry = self._vault.put(dataset, private)
                named = {"file_name": entry.file_name, "digest": entry.digest}
                with self._store.write() as tx:
                    # Held until the commit: what is retired afterwards removes these, too.
                    row = tx.dataset(dataset, lock=True)
                    kept = (
                        row is not None and row.retired_at is None and row.vault_entry["file_name"] == self._file_name
                    )
                    if kept:
                        self._add(tx, asked, named)
                    tx.commit()
                if not kept:
                    self._vault.destroy(entry)
        except Exception as error:  # noqa: BLE001 - what is not kept is counted again
            logger.warning("counts of a source could not be kept", error=type(error).__name__)

    def _add(self, tx: SqlTransaction, asked: CellCounts, entry: dict[str, str]) -> None:
        """Name the file of counts, in the place of one that is lost, or that another process was told."""
        row = {
            "file_name": self._file_name,
            "name": name_of(asked),
            "asked": orjson.dumps(document(asked)).decode(),
            "entry": orjson.dumps(entry).decode(),
        }
        added = (sqlite_insert if self._store.exclusive else pg_insert)(t.kept_counts).values(row)
        tx.connection.execute(
            added.on_conflict_do_update(index_elements=["file_name", "name"], set_={"entry": added.excluded.entry})
        )


class _Nothing:
    """Nothing is kept: what leaves memory is counted again."""

    def of(self, file_name: str) -> KeptCounts:
        return self

    def destroy(self, file_name: str) -> None:
        pass

    def files(self, named: Collection[str]) -> set[str]:
        return set()

    def others(self, known: Sequence[str]) -> Iterator[CellCounts]:
        return iter(())

    def load(self, name: str) -> IntArray | None:
        return None

    def keep(self, asked: CellCounts, counts: IntArray) -> None:
        pass


NOTHING_KEPT: Kept = _Nothing()
