"""The ledger: movements of budgets, and what they come to."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from sqlalchemy import ColumnElement, Select, String, case, cast, exists, func, literal, null, select

from app.services.ports import Holding, LedgerKind, LedgerRow
from app.storage import tables as t
from app.storage.transaction import BaseTransaction

c, s, g = t.ledger.c, t.sessions.c, t.ledger_sums.c
#: The last movement that is added up.
_REACHED = select(func.coalesce(func.max(t.ledger_state.c.movement), 0))
_NOTHING, _NO_TEXT = literal("0"), cast(null(), String)
#: Movements of sessions that are alike: of which data set and kind, whose, and how much in both sums.
_MOVED = (c.dataset, c.kind, s.owner, c.amount, case((s.spent_pure.is_not(None), func.coalesce(c.pure, "0"))))
_SUMS = (g.owner, g.reserved, g.spent, case((g.pure, g.reserved_pure)), case((g.pure, g.spent_pure)))


def _moved(*which: ColumnElement[bool]) -> Select[Any]:
    found = select(*_MOVED, func.count()).join_from(t.ledger, t.sessions, c.session == s.id)
    return found.where(*which).group_by(*_MOVED)


def changes(kind: LedgerKind, owner: str, amount: str, pure: str | None, number: int) -> Iterator[Holding]:
    """What so many movements of a kind change of what is held and spent."""
    none = None if pure is None else "0"
    yield Holding(owner, amount, "0", pure, none, number if kind == "reserve" else -number)
    if kind not in ("reserve", "return"):
        yield Holding(owner, "0", amount, none, pure, number)


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

    def holdings(self, dataset: str) -> list[Holding]:
        """What the sessions of a data set hold and have spent, by the movements of its ledger: the sums of those that
        are added up, and what the others change of them.

        No session is passed over.
        """
        # One statement, which sees one state: between two of them movements might be added up.
        sums = select(_NO_TEXT, *_SUMS, literal(1)).where(g.dataset == dataset)
        _, *alike = _MOVED
        others = _moved(c.dataset == dataset, c.id > _REACHED.scalar_subquery()).with_only_columns(
            *alike[:3], _NO_TEXT, alike[3], _NO_TEXT, func.count()
        )
        found: list[Holding] = []
        for kind, owner, reserved, spent, reserved_pure, spent_pure, number in self.connection.execute(
            sums.union_all(others)
        ):
            if kind is None:
                found.append(Holding(owner, reserved, spent, reserved_pure, spent_pure, number))
            else:
                found += changes(kind, owner, reserved, reserved_pure, number)
        return sorted(found, key=str)

    def summed(self, dataset: str) -> list[Holding]:
        """The sums of those movements of a data set's ledger that are added up."""
        rows = self.connection.execute(select(*_SUMS, literal(1)).where(g.dataset == dataset))
        return sorted((Holding(*row) for row in rows), key=str)

    def summed_to(self) -> int:
        """The number of the last movement that is added up, of any ledger; 0 where none is."""
        return int(self.connection.execute(_REACHED).scalar_one())

    def unsummed(self, last: int, most: int) -> tuple[int, dict[str, list[Holding]]] | None:
        """What movements change that are not added up: of each data set, and the number of the last of them. It is
        looked at those up to a number, so many at most. None where there are none, or somebody else adds them up.

        That nobody else does is so until the commit.
        """
        state = t.ledger_state
        self._put(state, [{"id": 1, "movement": 0}], replace=False)
        held = select(state.c.movement).with_for_update(skip_locked=True)
        reached = self.connection.execute(held).scalar_one_or_none()
        if reached is None or reached >= last:
            return None
        span = c.id > reached, c.id <= last
        numbers = select(c.id).where(*span).order_by(c.id).limit(most).subquery()
        end = self.connection.execute(select(func.max(numbers.c.id))).scalar_one()
        if end is None:
            return None
        found: dict[str, list[Holding]] = defaultdict(list)
        for dataset, *moved in self.connection.execute(_moved(c.id > reached, c.id <= end)):
            found[dataset] += changes(*moved)
        return int(end), found

    def sum_up(self, last: int, sums: Mapping[str, Iterable[Holding]]) -> None:
        """Have these sums stand for all movements of the ledgers of these data sets up to a number."""
        rows = [
            {
                "dataset": dataset,
                "owner": each.owner,
                "pure": each.spent_pure is not None,
                "reserved": each.reserved,
                "spent": each.spent,
                "reserved_pure": each.reserved_pure,
                "spent_pure": each.spent_pure,
            }
            for dataset, standing in sums.items()
            for each in standing
        ]
        self._put(t.ledger_sums, rows)
        self._change(t.ledger_state, t.ledger_state.c.id == 1, movement=last)
