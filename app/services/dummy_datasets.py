"""Made-up records in the place of a data set's: shown, or kept as a data set of their own for as long as a session on
them is open.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path
from tempfile import NamedTemporaryFile

import pyarrow as pa
import structlog

from app.declarations.errors import CuratorError
from app.declarations.spec import parse_spec
from app.services.datasets import DUMMY, Datasets, is_dummy
from app.services.dummy_records import drawn, dummy_table, encoded, mass_of, readable
from app.services.errors import TooManyRequests
from app.services.ports import Clock, DatasetRow, PrivateStore, Store, Transaction
from app.services.principals import Principal

logger = structlog.get_logger(__name__)

#: So many are kept at a time, so many of them for one principal, and each for so long.
MOST_DUMMIES, DUMMIES_EACH, DUMMY_AGE = 64, 16, timedelta(hours=24)
#: How many records they have where the number is not public, and at most.
DUMMY_RECORDS, MOST_DRAWN = 10_000, 1 << 20


@dataclass(frozen=True)
class Dummy:
    """Made-up records and the data set that they will be, whose file is not written yet."""

    row: DatasetRow
    table: pa.Table = field(repr=False)


class DummyDatasets:
    """Makes, keeps and destroys made-up records.

    Args:
        store: where they are data sets.
        private: where their records are kept.
        clock: tells the time.
        datasets: which they stand for.
        close_session: closes a session in its own turn, waited for so many seconds.
    """

    def __init__(
        self,
        store: Store,
        private: PrivateStore,
        clock: Clock,
        datasets: Datasets,
        *,
        close_session: Callable[[str, float | None], None],
    ) -> None:
        self._store, self._private, self._clock = store, private, clock
        self._datasets, self._close_session = datasets, close_session

    def table(self, actor: Principal, name: str, records: int, seed: int) -> pa.Table:
        """Made-up records like those of a data set, from its declaration alone.

        Raises:
            NotFound: when there is none of that name.
            Forbidden: when access is by grant, and an analyst has none.
            InvalidRequest: for a number of records or a seed out of range.
        """
        return dummy_table(parse_spec(self._datasets.seen(actor, name).spec), records, seed)

    def made(self, actor: Principal, row: DatasetRow) -> Dummy:
        """Made-up records in place of a data set's, as many as are public, with the whole budget as it was declared.

        Raises:
            Forbidden: when access is by grant, and an analyst has none.
            TooManyRequests: when as many of them are kept as may be.
        """
        spec = parse_spec(self._datasets.seen(actor, row.name).spec)
        with self._store.read() as tx:
            self.check(tx, actor)
        count = DUMMY_RECORDS if row.records is None else int(row.records)
        table = drawn(spec, max(1, min(count, MOST_DRAWN)), 0)
        made = DatasetRow(
            name=DUMMY + secrets.token_hex(16),
            spec=row.spec,
            records=None if row.records is None else mass_of(spec, table),
            bought={},
            vault_entry={},
            created_at=self._clock(),
        )
        return Dummy(made, table)

    def check(self, tx: Transaction, actor: Principal, opening: str | None = None) -> None:
        """Refuse to keep one more beside those that are kept; ``opening`` names the one for which that is asked.

        Raises:
            TooManyRequests: when as many of them are kept as may be, in all or for one principal.
        """
        kept = [name for name in tx.vault_entries() if name.startswith(DUMMY) and name != opening]
        own = sum(any(holding.owner == actor.name for holding in tx.holdings(name)) for name in kept)
        if own >= DUMMIES_EACH:
            raise TooManyRequests(f"you have {DUMMIES_EACH} sessions on made-up records open: close one first")
        if len(kept) >= MOST_DUMMIES:
            raise TooManyRequests(
                f"{MOST_DUMMIES} sessions on made-up records are open: send again when others have closed some"
            )

    def keep(self, dummy: Dummy) -> DatasetRow:
        """Keep made-up records as a data set of their own, that nobody can name and no list shows.

        Raises:
            Unavailable: when the file cannot be written.
        """
        with self._private.registration(), NamedTemporaryFile(suffix=".parquet") as file:
            file.write(encoded(dummy.table, "parquet"))
            file.flush()
            upload = self._private.read_upload(readable(parse_spec(dummy.row.spec)), file.name, Path(file.name))
            row = replace(dummy.row, vault_entry=self._private.put(dummy.row.name.removeprefix(DUMMY), upload))
            try:
                with self._store.write() as tx:
                    tx.add_dataset(row)
                    tx.commit()
            except BaseException:
                self._private.destroy(row.vault_entry)
                raise
        return row

    def end(self, row: DatasetRow) -> None:
        """Destroy made-up records."""
        with self._store.write() as tx:
            tx.retire_dataset(row.name, self._clock())
            tx.commit()
        self._private.destroy(row.vault_entry)

    def end_of(self, session: str) -> None:
        """Destroy the made-up records of a session on such, once it is closed; else nothing."""
        with self._store.read() as tx:
            closed = tx.session(session)
            row = None if closed is None or closed.status == "open" else tx.dataset(closed.dataset)
        if row is not None and is_dummy(row) and row.retired_at is None:
            self.end(row)

    def end_old(self) -> None:
        """Close sessions on made-up records that are older than :data:`DUMMY_AGE`, and destroy the records; but for one
        whose turn to close does not come.
        """
        before = datetime.fromisoformat(self._clock()) - DUMMY_AGE
        with self._store.read() as tx:
            kept = [row for row in tx.datasets() if is_dummy(row) and row.retired_at is None]
        for row in kept:
            if datetime.fromisoformat(row.created_at) < before:
                with self._store.read() as tx:
                    left = tx.open_in(row.name)
                try:
                    for session in left:
                        self._close_session(session, None)
                    self.end(row)
                except CuratorError as error:
                    logger.warning("an old session on made-up records cannot be ended", error=type(error).__name__)
