"""Evidence: what was measured of data sets."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import func, select

from app.services.ports import EvidenceRow
from app.storage import tables as t
from app.storage.transaction import PAGE_ROWS, BaseTransaction, columns

c = t.evidence.c


class Evidence(BaseTransaction):
    """What was measured."""

    def add_evidence(self, rows: Sequence[EvidenceRow]) -> None:
        """Append measurements of data sets."""
        self._add_rows(EvidenceRow, rows)

    def evidence_of(self, session: str, after: int, last: int) -> dict[int, bytes]:
        """The records of what a session measured for its entries beyond ``after`` up to ``last``, by entry."""
        rows = self.connection.execute(
            select(c.sequence, c.line).where(c.session == session, c.sequence > after, c.sequence <= last)
        )
        return {row.sequence: row.line for row in rows}

    def evidence_named(self, dataset: str, names: Sequence[str]) -> dict[str, bytes]:
        """Records of measurements of a data set by their hashes."""
        found: dict[str, bytes] = {}
        for start in range(0, len(names), PAGE_ROWS):
            rows = self.connection.execute(
                select(c.sha256, c.line).where(c.dataset == dataset, c.sha256.in_(names[start : start + PAGE_ROWS]))
            )
            found |= {row.sha256: row.line for row in rows}
        return found

    def evidence_row(self, dataset: str, name: str) -> EvidenceRow | None:
        """The measurement of a data set whose record has this hash."""
        found = select(*columns(EvidenceRow)).where(c.dataset == dataset, c.sha256 == name).order_by(c.id).limit(1)
        row = self.connection.execute(found).one_or_none()
        return None if row is None else EvidenceRow(*row)

    def shared_evidence(self, dataset: str, most_bytes: int) -> list[str]:
        """The hashes of what may serve every session of a data set, in the order of recording, up to so many bytes of
        records.
        """
        names: list[str] = []
        held = 0
        for name, size in self.connection.execute(
            select(c.sha256, func.length(c.line)).where(c.dataset == dataset, c.shared.is_(True)).order_by(c.id)
        ):
            held += size
            if held > most_bytes:
                break
            names.append(name)
        return names

    def count_evidence(self, dataset: str, *, shared: bool) -> int:
        """How many measurements of a data set there are; with ``shared`` of what may serve every session alone."""
        which = [c.dataset == dataset, *([c.shared.is_(True)] if shared else [])]
        return int(self.connection.execute(select(func.count()).select_from(t.evidence).where(*which)).scalar_one())

    def evidence_page(self, dataset: str, after: int, most: int) -> tuple[list[tuple[int, EvidenceRow]], bool]:
        """Measurements of a data set numbered beyond ``after``, each with its number, in order; and whether there are
        others: up to ``most``, or fewer where they are long.
        """
        return self._numbered_page(EvidenceRow, (c.id,), (after,), most, c.dataset == dataset, long=c.line)
