"""Data sets, and what analysts may take of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import orjson
from sqlalchemy import ColumnElement, Select, case, func, literal, select

from app.services.ports import DatasetRow, Holding
from app.storage import tables as t
from app.storage.transaction import BaseTransaction, bounded_wait

c, s = t.datasets.c, t.sessions.c
#: What a holding is told of: of sessions, of what they were opened with, and of sums.
_HELD = (s.owner, s.reserved, s.spent, s.reserved_pure, s.spent_pure)
_NONE = literal("0")
_OPENED = (s.owner, s.held, _NONE, s.held_pure, case((s.held_pure.is_not(None), _NONE), else_=None))
_STANDING = (
    t.standing.c.owner,
    t.standing.c.held,
    t.standing.c.spent,
    case((t.standing.c.pure, func.coalesce(t.standing.c.held_pure, _NONE)), else_=None),
    case((t.standing.c.pure, t.standing.c.spent_pure), else_=None),
)
#: The same of closed ones alone.
_SPENT = (_STANDING[0], _NONE, _STANDING[2], case((t.standing.c.pure, _NONE), else_=None), _STANDING[4])


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
        self._put(t.grants, [{"dataset": dataset, "principal": principal, "epsilon": epsilon}])

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

    def passed(self, dataset: str) -> list[Holding]:
        """The holdings and spending of the sessions of a data set. Those of one owner that agree in all of it are told
        together, and those that are settled as one, whose spending is the sum.

        All open sessions are passed over, so that it takes as long as there are many: it is what sums are held against.
        """
        # One statement, which sees one state: between two of them sessions might be settled.
        return self._holdings(
            self._each(s.dataset == dataset, ~s.settled),
            select(*_SPENT, literal(1)).where(t.standing.c.dataset == dataset),
        )

    def every(self, dataset: str) -> list[Holding]:
        """The holdings and spending of all sessions of a data set, settled or not, those that agree together. All of
        them are passed over, and no sum is looked at.
        """
        return self._holdings(self._each(s.dataset == dataset))

    def taken(self, dataset: str) -> list[Holding]:
        """The same sums, but that what open sessions have spent is told as if they held it still.

        Sums stand for open sessions too; none of them is passed over, but for those that were opened before sums of
        them were kept.
        """
        unsettled = s.dataset == dataset, ~s.settled
        closed = *unsettled, s.status == "closed", s.held.is_not(None)
        return self._holdings(
            select(*_STANDING, literal(1)).where(t.standing.c.dataset == dataset),
            # The sum has what they were opened with, and not what they have spent.
            select(*_OPENED, -func.count()).where(*closed).group_by(*_OPENED),
            self._each(*closed),
            self._each(*unsettled, s.held.is_(None)),
        )

    def _each(self, *which: ColumnElement[bool]) -> Select[Any]:
        """Some sessions, those that agree together."""
        return select(*_HELD, func.count()).where(*which).group_by(*_HELD)

    def _holdings(self, first: Select[Any], *others: Select[Any]) -> list[Holding]:
        rows = self.connection.execute(first.union_all(*others) if others else first)
        return sorted((Holding(*row) for row in rows), key=str)

    def standing(self, dataset: str) -> list[Holding]:
        """The sums that stand for sessions: what those that are not settled were opened with, and what the others have
        spent, by owner and by whether it is pure.
        """
        return self._holdings(select(*_STANDING, literal(1)).where(t.standing.c.dataset == dataset))

    def to_settle(self, dataset: str, most: int) -> dict[str, Holding]:
        """Up to ``most`` closed sessions that are not settled, held until the commit: what each was opened with, as far
        as that is part of a sum, and what it has spent. Those that others hold are left out.
        """
        opened = func.coalesce(s.held, _NONE), s.spent, func.coalesce(s.held_pure, s.reserved_pure), s.spent_pure
        closed = self.connection.execute(
            select(s.id, s.owner, *opened, literal(1))
            .where(s.dataset == dataset, ~s.settled, s.status == "closed")
            .limit(most)
            .with_for_update(skip_locked=True)
        )
        return {id: Holding(*held) for id, *held in closed}

    def stand(self, dataset: str, sums: Sequence[Holding], settled: Iterable[str]) -> None:
        """Have these sums stand for their owners: in them these sessions count with what they have spent."""
        rows = [
            {
                "dataset": dataset,
                "owner": each.owner,
                "pure": each.spent_pure is not None,
                "held": each.reserved,
                "held_pure": each.reserved_pure,
                "spent": each.spent,
                "spent_pure": each.spent_pure,
            }
            for each in sums
        ]
        self._put(t.standing, rows)
        gone = list(settled)
        if gone:
            self._change(t.sessions, s.id.in_(gone), settled=True)
