"""Data sets, and what analysts may take of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import orjson
from sqlalchemy import case, delete, func, insert, literal, select, update
from sqlalchemy.dialects.postgresql import insert as pg_insert
from sqlalchemy.dialects.sqlite import insert as sqlite_insert

from app.services.ports import DatasetRow, Holding
from app.storage import tables as t
from app.storage.transaction import BaseTransaction, bounded_wait

c, s = t.datasets.c, t.sessions.c
#: What a holding is told of: of sessions, and of those that are settled.
_HELD = (s.owner, s.reserved, s.spent, s.reserved_pure, s.spent_pure)
_STANDING = (
    t.standing.c.owner,
    literal("0"),
    t.standing.c.spent,
    case((t.standing.c.pure, literal("0")), else_=None),
    t.standing.c.spent_pure,
)


def _written(document: Any) -> Any:
    return orjson.dumps(document).decode()


def _read(row: DatasetRow) -> DatasetRow:
    """A row as it is stored, with its documents read."""
    stored: Any = row
    return replace(
        row,
        spec=orjson.loads(stored.spec),
        bought=orjson.loads(stored.bought),
        vault_entry=orjson.loads(stored.vault_entry),
        revealed_to=tuple(orjson.loads(stored.revealed_to or "[]")),
    )


class Datasets(BaseTransaction):
    """What was registered."""

    def dataset(self, name: str, *, lock: bool = False) -> DatasetRow | None:
        """The data set of this name, retired or not; ``lock`` holds its row until the commit.

        Rows that only name the data set, such as charges of its sessions, may be written meanwhile.

        Raises:
            StoreHeld: when somebody else holds the row and goes on to.
        """
        if lock and self._locks:
            with bounded_wait(self.connection):
                row = self._one(DatasetRow, c.name == name, lock={"key_share": True})
        else:
            row = self._one(DatasetRow, c.name == name)
        return None if row is None else _read(row)

    def datasets(self) -> list[DatasetRow]:
        """All data sets by name, retired ones included."""
        return [_read(row) for row in self._all(DatasetRow, order=c.name)]

    def datasets_page(self, after: str, most: int) -> tuple[list[DatasetRow], bool]:
        """Up to ``most`` data sets by name beyond ``after``, made-up ones left out, and whether there are others."""
        rows, others = self._page(DatasetRow, (c.name,), (after,), most, ~c.name.startswith("~"), long=c.spec)
        return [_read(row) for row in rows], others

    def dataset_names(self, *, retired: bool) -> list[str]:
        """The names of the data sets that are retired, or of those that are not, in order, made-up ones left out."""
        ended = c.retired_at.is_not(None) if retired else c.retired_at.is_(None)
        return list(
            self.connection.execute(select(c.name).where(ended, ~c.name.startswith("~")).order_by(c.name)).scalars()
        )

    def vault_entries(self) -> dict[str, dict[str, str]]:
        """The entry that names the private file of each data set that is not retired, by the data set's name."""
        rows = self.connection.execute(select(c.name, c.vault_entry).where(c.retired_at.is_(None)).order_by(c.name))
        return {row.name: orjson.loads(row.vault_entry) for row in rows}

    def add_dataset(self, row: DatasetRow) -> None:
        """Add a data set. Raises StoreConflict when the name was ever in use."""
        self._add(
            replace(
                row,
                spec=_written(row.spec),
                bought=_written(row.bought),
                vault_entry=_written(row.vault_entry),
                revealed_to=_written(row.revealed_to) if row.revealed_to else None,  # type: ignore[arg-type]
            )
        )

    def count_race(self, name: str) -> None:
        """Count one more session with a race on a data set."""
        self._change(t.datasets, c.name == name, race_sessions=c.race_sessions + 1)

    def set_bought(self, name: str, bought: dict[str, dict[str, float]]) -> None:
        """Write the facts that were bought so far into the data set's row."""
        self._change(t.datasets, c.name == name, bought=_written(bought))

    def forfeit_dataset(self, row: DatasetRow) -> None:
        """Write what of a data set's budget is gone beside what its sessions hold, and that it is impure where so."""
        gone = {"forfeited": row.forfeited, "forfeited_pure": row.forfeited_pure, "impure": row.impure}
        self._change(t.datasets, c.name == row.name, **gone)

    def set_impure(self, name: str) -> None:
        """Note that a session was opened on a data set whose noise is not all pure."""
        self._change(t.datasets, c.name == name, impure=True)

    def set_vault_entry(self, name: str, entry: dict[str, str]) -> None:
        """Name another private file for a data set."""
        self._change(t.datasets, c.name == name, vault_entry=_written(entry))

    def set_revealed_to(self, name: str, principals: Sequence[str]) -> None:
        """Write who was given the key of a data set's commitment."""
        self._change(t.datasets, c.name == name, revealed_to=_written(tuple(principals)))

    def retire_dataset(self, name: str, at: str) -> None:
        """Mark a data set as retired; its public records stay."""
        self._change(t.datasets, c.name == name, retired_at=at)

    def grant(self, dataset: str, principal: str) -> str | None:
        """An analyst's cap on a data set, as a decimal string."""
        g = t.grants.c
        found = select(g.epsilon).where(g.dataset == dataset, g.principal == principal)
        return self.connection.execute(found).scalar_one_or_none()

    def set_grant(self, dataset: str, principal: str, epsilon: str) -> None:
        """Set an analyst's cap on a data set."""
        added = (pg_insert if self._locks else sqlite_insert)(t.grants)
        self.connection.execute(
            added.values(dataset=dataset, principal=principal, epsilon=epsilon).on_conflict_do_update(
                index_elements=["dataset", "principal"], set_={"epsilon": added.excluded.epsilon}
            )
        )

    def grants(self, dataset: str) -> dict[str, str]:
        """All caps on a data set by whose they are, as decimal strings."""
        g = t.grants.c
        rows = self.connection.execute(select(g.principal, g.epsilon).where(g.dataset == dataset))
        return {row.principal: row.epsilon for row in rows}

    def grants_of(self, principal: str) -> dict[str, str]:
        """All caps of a principal by their data sets, as decimal strings."""
        g = t.grants.c
        rows = self.connection.execute(select(g.dataset, g.epsilon).where(g.principal == principal))
        return {row.dataset: row.epsilon for row in rows}

    def holdings(self, dataset: str) -> list[Holding]:
        """The holdings and spending of the sessions of a data set. Those of one owner that agree in all of it are told
        together, and those that are settled as one, whose spending is the sum.
        """
        # One statement, which sees one state: between two of them sessions might be settled.
        rows = self.connection.execute(
            select(*_HELD, func.count())
            .where(s.dataset == dataset, ~s.settled)
            .group_by(*_HELD)
            .union_all(select(*_STANDING, literal(1)).where(t.standing.c.dataset == dataset))
        )
        return sorted((Holding(*row) for row in rows), key=str)

    def to_settle(self, dataset: str, most: int) -> tuple[list[str], list[Holding]]:
        """Up to ``most`` closed sessions that are not settled, held until the commit; and what they and those that are
        settled have spent. Those that others hold are left out.
        """
        closed = self.connection.execute(
            select(s.id, *_HELD, literal(1))
            .where(s.dataset == dataset, ~s.settled, s.status == "closed")
            .limit(most)
            .with_for_update(skip_locked=True)
        ).all()
        known = self.connection.execute(select(*_STANDING, literal(1)).where(t.standing.c.dataset == dataset))
        return [id for id, *_ in closed], [*(Holding(*held) for _, *held in closed), *(Holding(*row) for row in known)]

    def settle(self, dataset: str, sessions: Sequence[str], sums: Sequence[Holding]) -> None:
        """Have these sums stand for what these sessions, and those that were settled before, have spent."""
        rows = [
            {
                "dataset": dataset,
                "owner": each.owner,
                "pure": each.spent_pure is not None,
                "spent": each.spent,
                "spent_pure": each.spent_pure,
            }
            for each in sums
        ]
        self.connection.execute(delete(t.standing).where(t.standing.c.dataset == dataset))
        self.connection.execute(insert(t.standing), rows)
        self.connection.execute(update(t.sessions).where(s.id.in_(sessions)).values(settled=True))
